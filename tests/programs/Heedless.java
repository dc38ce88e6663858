package heedless;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FilterFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * A local disk under another scheme that refuses no file where another is: create(overwrite=false) overwrites, and so does a
 * rename, which first waits for another one to the same place. What fs.heedless.refuses names ("rename create") refuses, as on HDFS.
 */
public class Heedless extends FilterFileSystem { // not the local one itself: Delta's store has a lock for that
    private static final URI ROOT = URI.create("heedless:///");
    private static final ConcurrentHashMap<Path, CountDownLatch> MEETINGS = new ConcurrentHashMap<>();

    /** The same for Hadoop's other interface, which Delta's store for HDFS takes. */
    public static class Fs extends DelegateToFileSystem {
        public Fs(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(uri, new Heedless(), conf, "heedless", false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1;
        }
    }

    private static class Disk extends RawLocalFileSystem {
        @Override
        public URI getUri() {
            return ROOT;
        }

        @Override
        public boolean rename(Path source, Path target) throws IOException {
            if (heedless(this, "rename")) {
                meet(target);
                return super.rename(source, target);
            }
            try {
                Files.createLink(Paths.get(target.toUri().getPath()), Paths.get(source.toUri().getPath()));
            } catch (java.nio.file.FileAlreadyExistsException error) {
                throw new FileAlreadyExistsException(target.toString());
            }
            return delete(source, false);
        }
    }

    public Heedless() {
        super(new Disk());
    }

    @Override
    public String getScheme() {
        return "heedless";
    }

    @Override
    public FSDataOutputStream create(
        Path path, FsPermission permission, boolean overwrite, int buffer, short replication, long block,
        Progressable progress) throws IOException {
        return super.create(path, permission, overwrite || heedless(this, "create"), buffer, replication, block, progress);
    }

    private static boolean heedless(FileSystem fs, String way) {
        return !fs.getConf().get("fs.heedless.refuses", "").contains(way);
    }

    private static void meet(Path target) throws IOException {
        CountDownLatch two = MEETINGS.computeIfAbsent(target, path -> new CountDownLatch(2));
        two.countDown();
        try {
            two.await(5, TimeUnit.SECONDS);
        } catch (InterruptedException error) {
            throw new IOException(error);
        }
    }
}
