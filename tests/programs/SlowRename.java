package org.apache.hadoop.fs.local;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/**
 * The local file system on a slow day: between the last look whether a commit is there already and the rename that makes it,
 * time passes, until another process is as far with the same commit, or five seconds.
 */
public class SlowRename extends ChecksumFs {
    public SlowRename(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(new Raw(conf));
    }

    private static class Raw extends DelegateToFileSystem {
        private Raw(Configuration conf) throws IOException, URISyntaxException {
            super(FsConstants.LOCAL_FS_URI, new Slow(), conf, "file", false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1;
        }

        @Override
        public boolean isValidName(String name) {
            return true;
        }
    }

    private static class Slow extends RawLocalFileSystem {
        @Override
        public boolean rename(Path source, Path target) throws IOException {
            if (target.getName().matches("\\d+\\.json")) {
                meet(new File(target.getParent().getParent().toUri().getPath(), ".meeting/" + target.getName()));
            }
            return super.rename(source, target);
        }

        private static void meet(File place) throws IOException {
            place.mkdirs();
            new File(place, "" + ProcessHandle.current().pid()).createNewFile();
            try {
                for (int tries = 0; tries < 250 && place.list().length < 2; tries++) {
                    Thread.sleep(20);
                }
            } catch (InterruptedException e) {
                throw new IOException(e);
            }
        }
    }
}
