package halfop;

import io.delta.storage.HDFSLogStore;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Delta's log on a local disk. A commit is a hard link, which the disk itself refuses where another's commit is; Delta's own
 * store looks and then renames, so that of two processes one overwrites the other's commit. It also starts some fourteen
 * processes a commit (chmod, readlink), because Hadoop's file system on a disk does. A disk without hard links gets Delta's,
 * and a warning once a process. Before anybody sees a commit its data files and its bytes are durable, whoever wrote them,
 * and before the writer hears of it, its folder's entry.
 */
public class LocalLogStore extends HDFSLogStore {
    private static final Logger LOG = LoggerFactory.getLogger(LocalLogStore.class);
    private static final String SYNC = "halfop.warehouse.sync";
    private static final Pattern COMMIT = Pattern.compile("(\\d{20})\\.json");
    private static final AtomicBoolean WARNED = new AtomicBoolean();

    public LocalLogStore(Configuration conf) {
        super(conf);
    }

    public void write(Path path, Iterator<String> lines, Boolean overwrite, Configuration conf) throws IOException {
        List<String> all = new ArrayList<String>();
        while (lines.hasNext()) {
            all.add((String) lines.next());
        }
        try {
            write(path, all, overwrite.booleanValue(), conf);
        } catch (FileAlreadyExistsException error) {
            throw error;
        } catch (IOException error) { // Kernel would try 200 times again, and then show only that it has
            throw new UncheckedIOException("the disk did not take " + path + ": " + error.getMessage(), error);
        }
    }

    private void write(Path path, List<String> lines, boolean overwrite, Configuration conf) throws IOException {
        java.nio.file.Path target = Durable.path(path);
        java.nio.file.Path whole = target.resolveSibling("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
        boolean sync = conf.getBoolean(SYNC, true) && !target.toString().endsWith(".crc"); // without that Delta reads more
        try {
            if (sync) {
                before(target, lines);
            }
            write(whole, lines, sync);
            // of a file that was here before: Hadoop would hold its checksum against this one
            Files.deleteIfExists(Durable.checksum(target));
            if (overwrite) {
                Files.move(whole, target, new StandardCopyOption[] {StandardCopyOption.ATOMIC_MOVE});
            } else {
                String problem = whyNotLinked(whole, target);
                if (problem != null) {
                    super.write(path, lines.iterator(), Boolean.FALSE, conf);
                    warnOnce(problem); // a full disk has failed by now: it is no disk without links
                    sync(target, sync);
                }
            }
            if (sync) {
                after(target, overwrite);
            }
        } finally {
            Files.deleteIfExists(whole);
        }
    }

    /** Makes durable what the file names: a commit its data files, `_last_checkpoint` the checkpoint. */
    private static void before(java.nio.file.Path target, List<String> lines) throws IOException {
        Matcher commit = COMMIT.matcher(target.getFileName().toString());
        if (commit.matches()) {
            Durable.dataFiles(target.getParent(), lines, Long.parseLong(commit.group(1)) == 0L);
        } else if (target.endsWith("_last_checkpoint")) {
            Durable.checkpoint(target.getParent(), lines);
        }
    }

    /** Makes the file's entry durable. If that fails nobody knows whether a power cut keeps it, so a new one is withdrawn. */
    private static void after(java.nio.file.Path target, boolean overwritten) throws IOException {
        try {
            Durable.force(target.getParent());
        } catch (IOException error) {
            Matcher commit = COMMIT.matcher(target.getFileName().toString());
            if (!overwritten && commit.matches() && !isFollowed(target, Long.parseLong(commit.group(1)))) {
                Files.deleteIfExists(target);
            }
            throw error;
        }
    }

    private static boolean isFollowed(java.nio.file.Path commit, long version) {
        String next = String.format("%020d.json", new Object[] {Long.valueOf(version + 1L)});
        return Files.exists(commit.resolveSibling(next), new java.nio.file.LinkOption[0]);
    }

    private static void write(java.nio.file.Path path, List<String> lines, boolean sync) throws IOException {
        BufferedWriter out = Files.newBufferedWriter(path, StandardCharsets.UTF_8, new java.nio.file.OpenOption[0]);
        try {
            for (Object line : lines) {
                out.write((String) line);
                out.write("\n");
            }
        } finally {
            out.close();
        }
        sync(path, sync);
    }

    private static void sync(java.nio.file.Path path, boolean sync) throws IOException {
        if (sync) {
            Durable.force(path);
        }
    }

    /** Returns why the disk made no hard link; null if it made one. */
    private static String whyNotLinked(java.nio.file.Path from, java.nio.file.Path to) throws IOException {
        try {
            Files.createLink(to, from);
            return null;
        } catch (FileAlreadyExistsException error) {
            return refusedUnlessSame(from, to);
        } catch (UnsupportedOperationException error) {
            return error.toString();
        } catch (FileSystemException error) {
            if (Files.exists(to, new java.nio.file.LinkOption[0])) {
                return refusedUnlessSame(from, to);
            }
            return error.toString();
        }
    }

    /** A disk may have made the link, and answered an error. */
    private static String refusedUnlessSame(java.nio.file.Path from, java.nio.file.Path to) throws IOException {
        if (!Files.isSameFile(from, to)) {
            throw new FileAlreadyExistsException(to.toString());
        }
        return null;
    }

    private static void warnOnce(String problem) {
        if (WARNED.compareAndSet(false, true)) {
            LOG.warn("no hard link could be made, so Delta's own store commits: of two processes one can overwrite the "
                + "other's commit. Let no other program write to these tables while a job works (" + problem + ")");
        }
    }
}
