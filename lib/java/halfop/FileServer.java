package halfop;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.PrivilegedExceptionAction;
import java.security.SecureRandom;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Serves files over one connection of loopback to whoever sends the task's secret first: the task's Python worker. */
class FileServer implements Runnable, TaskCompletionListener {
    private static final Logger LOG = LoggerFactory.getLogger(FileServer.class);
    private static final int SECRET_BYTES = 32;
    private static final int SECRET_MILLIS = 5000;
    private static final int LAST_MILLIS = 10000;

    private final ServedFiles files;
    private final UserGroupInformation user;
    private final Thread thread = new Thread(this, "halfop-files");
    private final byte[] secret = new byte[SECRET_BYTES];
    private final ServerSocket listening;
    private Socket connection;
    private boolean ended;

    FileServer(Configuration configuration, UserGroupInformation user) throws IOException {
        this.files = new ServedFiles(configuration);
        this.user = user;
        this.listening = new ServerSocket(0, 0, InetAddress.getLoopbackAddress());
        new SecureRandom().nextBytes(secret);
        thread.setDaemon(true);
        thread.start();
    }

    /** The secret, the port as four bytes, and the host as text. */
    byte[] address() {
        byte[] host = listening.getInetAddress().getHostAddress().getBytes(StandardCharsets.US_ASCII);
        ByteBuffer address = ByteBuffer.allocate(SECRET_BYTES + 4 + host.length);
        return address.put(secret).putInt(listening.getLocalPort()).put(host).array();
    }

    public void run() {
        try {
            user.doAs(new PrivilegedExceptionAction() {
                public Object run() throws IOException {
                    serve();
                    return null;
                }
            });
        } catch (Exception error) {
            if (!end()) {
                LOG.warn("a task's connection to its files broke", error);
            }
        }
    }

    private void serve() throws IOException {
        Socket worker = accepted();
        listening.close();
        try {
            files.serve(new DataInputStream(new BufferedInputStream(worker.getInputStream())), worker.getOutputStream());
        } finally {
            worker.close();
        }
    }

    private Socket accepted() throws IOException {
        while (true) {
            Socket caller = listening.accept();
            remember(caller);
            if (knowsSecret(caller)) {
                caller.setTcpNoDelay(true);
                return caller;
            }
            LOG.warn("refused a connection of " + caller.getRemoteSocketAddress() + ", which did not send the secret");
            caller.close();
        }
    }

    private boolean knowsSecret(Socket caller) throws IOException {
        byte[] said = new byte[SECRET_BYTES];
        caller.setSoTimeout(SECRET_MILLIS);
        try {
            new DataInputStream(caller.getInputStream()).readFully(said);
        } catch (IOException error) {
            return false;
        }
        caller.setSoTimeout(0);
        return MessageDigest.isEqual(secret, said);
    }

    private synchronized void remember(Socket caller) throws IOException {
        connection = caller;
        if (ended) {
            caller.close();
        }
    }

    /** Returns whether it had ended before. */
    private synchronized boolean end() {
        boolean before = ended;
        ended = true;
        try {
            listening.close();
            if (connection != null) {
                connection.close();
            }
        } catch (IOException error) {
            LOG.debug("a connection did not close", error);
        }
        return before;
    }

    /** The task ends when what its worker left half written is removed, unless that takes too long. */
    public void onTaskCompletion(TaskContext context) {
        end();
        try {
            thread.join(LAST_MILLIS);
        } catch (InterruptedException killed) {
            Thread.currentThread().interrupt();
        }
    }
}
