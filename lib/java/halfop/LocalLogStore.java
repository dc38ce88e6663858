package halfop;

import io.delta.storage.HDFSLogStore;
import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Delta's log on a local disk. A commit is a hard link, which the disk itself refuses where another's commit is; Delta's own
 * store looks and then renames, so that of two processes one overwrites the other's commit. It also starts some fourteen
 * processes a commit (chmod, readlink), because Hadoop's file system on a disk does. A disk without hard links gets Delta's,
 * and a warning once a process.
 */
public class LocalLogStore extends HDFSLogStore {
    private static final Logger LOG = LoggerFactory.getLogger(LocalLogStore.class);
    private static final AtomicBoolean WARNED = new AtomicBoolean();

    public LocalLogStore(Configuration conf) {
        super(conf);
    }

    public void write(Path path, Iterator<String> lines, Boolean overwrite, Configuration conf) throws IOException {
        java.nio.file.Path target = Paths.get(path.toUri().getPath(), new String[0]);
        java.nio.file.Path whole = target.resolveSibling("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
        List<String> all = new ArrayList<String>();
        while (lines.hasNext()) {
            all.add((String) lines.next());
        }
        try {
            write(whole, all);
            // of a file that was here before: Hadoop would hold its checksum against this one
            Files.deleteIfExists(target.resolveSibling("." + target.getFileName() + ".crc"));
            if (overwrite.booleanValue()) {
                Files.move(whole, target, new StandardCopyOption[] {StandardCopyOption.ATOMIC_MOVE});
            } else {
                String problem = whyNotLinked(whole, target);
                if (problem != null) {
                    super.write(path, all.iterator(), overwrite, conf);
                    warnOnce(problem); // a full disk has failed by now: it is no disk without links
                }
            }
        } finally {
            Files.deleteIfExists(whole);
        }
    }

    private static void write(java.nio.file.Path path, List<String> lines) throws IOException {
        BufferedWriter out = Files.newBufferedWriter(path, StandardCharsets.UTF_8, new java.nio.file.OpenOption[0]);
        try {
            for (Object line : lines) {
                out.write((String) line);
                out.write("\n");
            }
        } finally {
            out.close();
        }
    }

    /** Returns why the disk made no hard link; null if it made one. */
    private static String whyNotLinked(java.nio.file.Path from, java.nio.file.Path to) throws IOException {
        try {
            Files.createLink(to, from);
            return null;
        } catch (FileAlreadyExistsException error) {
            throw error;
        } catch (UnsupportedOperationException error) {
            return error.toString();
        } catch (FileSystemException error) {
            if (Files.exists(to, new java.nio.file.LinkOption[0])) {
                throw new FileAlreadyExistsException(to.toString());
            }
            return error.toString();
        }
    }

    private static void warnOnce(String problem) {
        if (WARNED.compareAndSet(false, true)) {
            LOG.warn("no hard link could be made, so Delta's own store commits: of two processes one can overwrite the "
                + "other's commit. Let no other program write to these tables while a job works (" + problem + ")");
        }
    }
}
