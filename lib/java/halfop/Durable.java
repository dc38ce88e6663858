package halfop;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.nio.channels.FileChannel;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import org.apache.spark.util.ThreadUtils;

/** Makes files of a local disk durable: their bytes, and their folders' entries of them, so that a power cut keeps both. */
class Durable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int FEW = 4; // files that are quicker one after the other
    private static final String NO_SYNC = "Invalid argument";
    private static final int THREADS = 8; // a disk takes several at once for the price of one

    private Durable() {}

    /** Makes the data files durable that a commit adds. Whoever wrote them, the commit names them, and is the last to. */
    static void dataFiles(Path log, List lines, boolean isFirst) throws IOException {
        Path table = log.getParent();
        Set<Path> files = new LinkedHashSet<Path>();
        Set<Path> folders = new LinkedHashSet<Path>();
        for (Object line : lines) {
            Path file = named((String) line, table);
            if (file != null) {
                Files.deleteIfExists(checksum(file));
                files.add(file);
                folders.add(file.getParent());
            }
        }
        Set<Path> above = new LinkedHashSet<Path>();
        for (Object folder : folders) { // of a new partition the table's folder has the entry
            Path at = ((Path) folder).getParent();
            while (at != null && at.startsWith(table)) {
                above.add(at);
                at = at.getParent();
            }
        }
        folders.addAll(above);
        force(files);
        force(folders);
        if (isFirst) {
            ancestors(log);
        }
    }

    /** The data file that an action of the log names; null if it names none, or one of another file system. */
    private static Path named(String line, Path table) throws IOException {
        if (!line.startsWith("{\"add\"") && !line.startsWith("{\"cdc\"")) {
            return null;
        }
        Map action = (Map) ((Map) JSON.readValue(line, Object.class)).values().iterator().next();
        URI name = URI.create((String) action.get("path"));
        if (name.getScheme() != null && !name.getScheme().equals("file")) {
            return null;
        }
        return table.resolve(name.getPath());
    }

    /** A new table's folders, and those that were made for them; others' may be closed to us, and are durable. */
    private static void ancestors(Path log) throws IOException {
        for (Path folder = log.toAbsolutePath().getParent(); folder != null; folder = folder.getParent()) {
            try {
                force(folder);
            } catch (AccessDeniedException error) {
                return;
            }
        }
    }

    private static void force(Set<Path> paths) throws IOException {
        if (paths.size() <= FEW) {
            for (Object path : paths) {
                force((Path) path);
            }
            return;
        }
        ExecutorService threads = ThreadUtils.newDaemonFixedThreadPool(THREADS, "halfop-durable");
        try {
            List<Future> forced = new ArrayList<Future>();
            for (Object path : paths) {
                forced.add(threads.submit((Callable) new Force((Path) path)));
            }
            for (Object each : forced) {
                ((Future) each).get();
            }
        } catch (ExecutionException error) {
            throw error.getCause() instanceof IOException ? (IOException) error.getCause() : new IOException(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IOException(error);
        } finally {
            threads.shutdown();
        }
    }

    /** Makes a file's bytes durable, or a folder's entries. */
    static void force(Path path) throws IOException {
        FileChannel channel = FileChannel.open(path, new OpenOption[] {StandardOpenOption.READ});
        try {
            channel.force(true);
        } catch (IOException error) {
            if (NO_SYNC.equals(error.getMessage()) && Files.isDirectory(path, new LinkOption[0])) {
                return; // its file system syncs no folders, as VirtualBox's shared ones
            }
            throw new IOException(path + " could not be synced: " + error.getMessage(), error);
        } finally {
            channel.close();
        }
    }

    /** Makes the files of a checkpoint durable, before `_last_checkpoint`, which has these lines, names it. */
    static void checkpoint(Path log, List lines) throws IOException {
        Map about = (Map) JSON.readValue((String) lines.get(0), Object.class);
        Object version = about.get("version");
        Set<Path> files = new LinkedHashSet<Path>();
        Path whole = log.resolve(String.format("%020d.checkpoint.parquet", new Object[] {version}));
        if (Files.exists(whole, new LinkOption[0])) {
            files.add(whole);
        } else if (about.get("parts") instanceof Integer) {
            for (int part = 1; part <= ((Integer) about.get("parts")).intValue(); part++) {
                Object[] named = new Object[] {version, Integer.valueOf(part), about.get("parts")};
                files.add(log.resolve(String.format("%020d.checkpoint.%010d.%010d.parquet", named)));
            }
        }
        for (Object file : files) {
            Files.deleteIfExists(checksum((Path) file));
        }
        force(files);
        force(log);
    }

    /** Hadoop's checksums of a file, beside it. They are written without a sync, and cut off they make the file unreadable. */
    static Path checksum(Path file) {
        return file.resolveSibling("." + file.getFileName() + ".crc");
    }

    static Path path(org.apache.hadoop.fs.Path path) {
        return Paths.get(path.toUri().getPath(), new String[0]);
    }

    private static class Force implements Callable {
        private final Path path;

        Force(Path path) {
            this.path = path;
        }

        public Object call() throws IOException {
            force(path);
            return null;
        }
    }
}
