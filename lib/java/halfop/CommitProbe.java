package halfop;

import io.delta.kernel.defaults.internal.logstore.LogStoreProvider;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.delta.storage.DelegatingLogStore;
import org.apache.spark.sql.delta.storage.LogStore;
import org.apache.spark.sql.delta.storage.LogStoreAdaptor;

/**
 * Finds out whether a store refuses a commit where another's is. Several writers make the same file by the log stores that
 * commit there, Kernel's and the Spark connector's. Each has looked, and has its lines ready, before the first goes on: so a
 * store that looks and then writes makes more than one, as it would of several drivers.
 */
public class CommitProbe {
    private static final int ROUNDS = 3; // one may be in luck
    private static final long MOST_SECONDS = 5L;
    private static final String ONE_DRIVER = "it only looks before it writes, which is safe for one driver alone";

    private final Configuration conf;
    private final List<LogStore> stores;
    private final Path path;
    private final CountDownLatch ready;
    private int made = 0;
    private Throwable problem = null;

    private CommitProbe(List<LogStore> stores, Path path, Configuration conf) {
        this.stores = stores;
        this.path = path;
        this.conf = conf;
        this.ready = new CountDownLatch(stores.size());
    }

    /**
     * Returns why commits to tables in a folder can be overwritten; null if they cannot. There are as many writers as stores
     * of the connector's are given, each with a store of its own, as a driver has.
     */
    public static String problem(String root, List<LogStore> connectors, Configuration conf) throws Exception {
        Path given = new Path(root);
        FileSystem fs = given.getFileSystem(conf);
        Path folder = fs.makeQualified(new Path(given, "_probe-" + UUID.randomUUID()));
        Path log = new Path(folder, "_delta_log");
        try {
            fs.mkdirs(log);
            List<LogStore> kernels = new ArrayList<LogStore>();
            while (kernels.size() < connectors.size()) {
                kernels.add(new LogStoreAdaptor(LogStoreProvider.getLogStore(conf, log.toUri().getScheme())));
            }
            String found = null;
            for (int commit = 0; found == null && commit < 2 * ROUNDS; commit++) {
                Path path = new Path(log, String.format("%020d.json", new Object[] {Integer.valueOf(commit)}));
                found = new CommitProbe(commit % 2 == 0 ? kernels : connectors, path, conf).problem();
            }
            return found;
        } finally {
            fs.delete(folder, true);
        }
    }

    private String problem() throws Exception {
        String name = named();
        if (name.endsWith("S3SingleDriverLogStore")) { // its lock within this JVM would hide it from the writers
            return name + ": " + ONE_DRIVER;
        }
        List<Thread> writers = new ArrayList<Thread>();
        for (Object store : stores) {
            Thread writer = writer((LogStore) store, new Lines("{\"writer\":" + writers.size() + "}"));
            writers.add(writer);
            writer.start();
        }
        for (Object writer : writers) {
            ((Thread) writer).join();
        }
        if (made == 0) {
            throw new IOException("no commit could be made in " + path.getParent(), problem);
        }
        return made == 1 ? null : name + ": " + made + " of " + stores.size() + " writers at once made the same commit";
    }

    /** The class that writes: the connector's own finds it by the scheme. */
    private String named() {
        LogStore found = (LogStore) stores.get(0);
        if (found instanceof DelegatingLogStore) {
            found = ((DelegatingLogStore) found).getDelegate(path);
        }
        Object writes = found instanceof LogStoreAdaptor ? (Object) ((LogStoreAdaptor) found).logStoreImpl() : found;
        return writes.getClass().getName();
    }

    private Thread writer(final LogStore store, final Lines lines) {
        return new Thread() {
            public void run() {
                write(store, lines);
            }
        };
    }

    private void write(LogStore store, Lines lines) {
        try {
            store.write(path, scala.jdk.javaapi.CollectionConverters.asScala(lines), false, conf);
            count(null);
        } catch (Throwable error) { // of Scala's methods, which declare none
            if (!(error instanceof FileAlreadyExistsException)) {
                count(error);
            }
        } finally {
            lines.arrive();
        }
    }

    private synchronized void count(Throwable error) {
        if (error == null) {
            made++;
        } else {
            problem = error;
        }
    }

    /** A writer's only line. At its end it waits until all writers are there, or have been refused. */
    private class Lines implements Iterator<String> {
        private final String line;
        private boolean given = false;
        private boolean arrived = false;

        private Lines(String line) {
            this.line = line;
        }

        public boolean hasNext() {
            if (given && !arrived) {
                arrive();
                try {
                    ready.await(MOST_SECONDS, TimeUnit.SECONDS);
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            }
            return !given;
        }

        public String next() {
            given = true;
            return line;
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }

        private void arrive() {
            if (!arrived) {
                arrived = true;
                ready.countDown();
            }
        }
    }
}
