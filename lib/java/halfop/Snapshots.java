package halfop;

import io.delta.kernel.engine.Engine;
import io.delta.kernel.exceptions.TableNotFoundException;
import io.delta.kernel.internal.SnapshotImpl;
import io.delta.kernel.internal.TableImpl;
import io.delta.kernel.internal.util.FileNames;
import io.delta.kernel.internal.util.Utils;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Tables at their versions. The last ones are kept: most of what a small run asks, it asks of the same few again. */
class Snapshots {
    private static final int MOST_KEPT = 256;

    private final Engine engine;
    private final Configuration conf;
    private final Map<String, Kept> kept = new LinkedHashMap<String, Kept>(16, 0.75f, true);

    Snapshots(Engine engine, Configuration conf) {
        this.engine = engine;
        this.conf = conf;
    }

    /** Returns a table at a version, or at its newest if that is below 0; null if there is no table. */
    SnapshotImpl of(String path, long version) throws IOException {
        boolean newest = version < 0;
        Kept known = known(newest ? path : path + " " + version);
        if (known != null && known.holds(newest)) {
            return known.snapshot;
        }
        TableImpl table = (TableImpl) TableImpl.forPath(engine, path);
        try {
            Kept found = new Kept(newest ? table.getLatestSnapshot(engine) : table.getSnapshotAsOfVersion(engine, version), conf);
            if (newest) {
                keep(path, found);
            }
            keep(path + " " + found.snapshot.getVersion(), found);
            return found.snapshot;
        } catch (TableNotFoundException error) {
            if (newest) {
                return null;
            }
            throw error;
        }
    }

    /** Closes what Kernel has read; if a read has failed its close fails, too, and would hide why. */
    static void close(AutoCloseable read) {
        Utils.closeCloseablesSilently(new AutoCloseable[] {read});
    }

    private synchronized Kept known(String key) {
        return (Kept) kept.get(key);
    }

    private synchronized void keep(String key, Kept found) {
        kept.put(key, found);
        if (kept.size() > MOST_KEPT) {
            kept.remove(kept.keySet().iterator().next());
        }
    }

    /** A snapshot, and the file of the commit that it ends with: by that it is known again. */
    private static class Kept {
        final SnapshotImpl snapshot;
        private final FileSystem system;
        private final FileStatus commit;

        Kept(SnapshotImpl snapshot, Configuration conf) throws IOException {
            this.snapshot = snapshot;
            this.system = file(snapshot.getVersion()).getFileSystem(conf);
            this.commit = commit();
        }

        /** Returns whether the log still has, or still ends with, this version: its commit is as it was, and none follows. */
        boolean holds(boolean newest) throws IOException {
            FileStatus now = commit == null ? null : commit();
            return now != null && now.getModificationTime() == commit.getModificationTime() && now.getLen() == commit.getLen()
                && !(newest && system.exists(file(snapshot.getVersion() + 1)));
        }

        private Path file(long version) {
            return new Path(FileNames.deltaFile(snapshot.getLogPath(), version));
        }

        /** The commit's file as it is now; null if it was cleaned up. */
        private FileStatus commit() throws IOException {
            try {
                return system.getFileStatus(file(snapshot.getVersion()));
            } catch (FileNotFoundException error) {
                return null;
            }
        }
    }
}
