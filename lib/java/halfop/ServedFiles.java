package halfop;

import java.io.Closeable;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.io.IOUtils;
import org.apache.hadoop.util.functional.FutureIO;
import org.apache.spark.util.ThreadUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hadoop's files by requests, one after the other. A request is (byte what, int file, long position, int size), then
 * `size` bytes if it brings some: a path, or what a file gets. Who asks numbers the files. An answer is (byte failed,
 * int size), then as many bytes: what was asked for, or the error as text. `halfop/warehouse/through_java.py` asks.
 */
class ServedFiles {
    private static final Logger LOG = LoggerFactory.getLogger(ServedFiles.class);
    private static final int MOST_BYTES = 1 << 26;
    private static final int ENDING = 8; // files at once: HDFS waits up to 0.4 s for each, a store of objects uploads it
    private static final int HEAD = 5; // of an answer; what follows lies after it in the buffer
    private static final String POLICY = "parquet, columnar, vector, random";

    private final Configuration configuration;
    private final Map read = new HashMap();
    private final Map written = new HashMap();
    private final ExecutorService ending = ThreadUtils.newDaemonFixedThreadPool(ENDING, "halfop-ending-files");
    private byte[] buffer = new byte[1 << 16];

    ServedFiles(Configuration configuration) {
        this.configuration = configuration;
    }

    /** Answers until the asker closes the connection. Then files that are half written are removed. */
    void serve(DataInputStream in, OutputStream out) throws IOException {
        try {
            for (int what = in.read(); what >= 0; what = in.read()) {
                answer(what, in, out);
            }
        } finally {
            for (Object file : read.values()) {
                IOUtils.closeStream((Closeable) file);
            }
            for (Object file : written.values()) {
                ((Written) file).discard();
            }
            ending.shutdown();
        }
    }

    private void answer(int what, DataInputStream in, OutputStream out) throws IOException {
        Integer file = Integer.valueOf(in.readInt());
        long position = in.readLong();
        int size = in.readInt();
        if (size < 0 || size > MOST_BYTES) {
            throw new IOException("a request of " + size + " bytes");
        }
        if (buffer.length < HEAD + size) {
            buffer = new byte[HEAD + size];
        }
        if (what != 'r') {
            in.readFully(buffer, HEAD, size);
        }
        byte failed = 0;
        int answered;
        try {
            answered = done(what, file, position, size);
        } catch (Throwable error) { // also a class that is missing: the worker reports it
            failed = 1;
            answered = put(error.toString().getBytes(StandardCharsets.UTF_8));
        }
        ByteBuffer.wrap(buffer).put(failed).putInt(answered);
        out.write(buffer, 0, HEAD + answered);
    }

    private int done(int what, Integer file, long position, int size) throws IOException {
        switch (what) {
            case 'o':
                return put(open(file, path(size)));
            case 'r':
                ((FSDataInputStream) known(read, file)).readFully(position, buffer, HEAD, size);
                return size;
            case 'c':
                written.put(file, new Written(path(size), configuration));
                return 0;
            case 'w':
                ((Written) known(written, file)).out.write(buffer, HEAD, size);
                return 0;
            case 'f':
                ((Written) known(written, file)).beginToEnd(ending);
                return 0;
            case 'e':
                return put(ended(file));
            default:
                throw new IOException("no request is called " + what);
        }
    }

    private Path path(int size) {
        return new Path(new String(buffer, HEAD, size, StandardCharsets.UTF_8));
    }

    /** Returns its length. */
    private byte[] open(Integer file, Path path) throws IOException {
        FileSystem fs = path.getFileSystem(configuration);
        FileStatus status = fs.getFileStatus(path);
        Object opening = fs.openFile(path).withFileStatus(status)
            .opt(Options.OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY, POLICY).build();
        read.put(file, FutureIO.awaitFuture((Future) opening));
        return ByteBuffer.allocate(8).putLong(status.getLen()).array();
    }

    /** Returns the length and the time of modification of a file that was written. */
    private byte[] ended(Integer file) throws IOException {
        Closeable open = (Closeable) read.remove(file);
        if (open != null) {
            IOUtils.closeStream(open);
            return new byte[0];
        }
        FileStatus status = ((Written) known(written, file)).end();
        written.remove(file);
        return ByteBuffer.allocate(16).putLong(status.getLen()).putLong(status.getModificationTime()).array();
    }

    private static Object known(Map files, Integer file) throws IOException {
        Object found = files.get(file);
        if (found == null) {
            throw new IOException("file " + file + " is not open");
        }
        return found;
    }

    private int put(byte[] answer) {
        if (buffer.length < HEAD + answer.length) {
            buffer = new byte[HEAD + answer.length];
        }
        System.arraycopy(answer, 0, buffer, HEAD, answer.length);
        return answer.length;
    }

    private static class Written implements Callable {
        final FSDataOutputStream out;
        private final Path path;
        private final FileSystem fs;
        private Future ending;

        Written(Path path, Configuration configuration) throws IOException {
            this.path = path;
            this.fs = path.getFileSystem(configuration);
            // its name is like no other's, so that a store of objects need not look
            this.out = (FSDataOutputStream) fs.createFile(path).recursive().overwrite(true)
                .opt("fs.s3a.create.performance", true).build();
        }

        void beginToEnd(ExecutorService threads) {
            ending = threads.submit((Callable) this);
        }

        public Object call() throws IOException {
            out.close();
            return fs.getFileStatus(path);
        }

        FileStatus end() throws IOException {
            return (FileStatus) (ending == null ? call() : FutureIO.awaitFuture(ending));
        }

        void discard() {
            try {
                if (ending == null && out.hasCapability(StreamCapabilities.ABORTABLE_STREAM)) {
                    out.abort();
                    return;
                }
                try {
                    end();
                } catch (IOException error) {
                    LOG.debug("half of " + path + " has no end", error);
                }
                fs.delete(path, false);
            } catch (IOException error) {
                LOG.warn("half of " + path + " may be left; no table names it, and VACUUM removes it", error);
            }
        }
    }
}
