package halfop;

import java.io.IOException;
import java.util.Iterator;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.util.SerializableConfiguration;

/**
 * Gives the Python worker of each task a server of Hadoop's files, which lives in the executor's JVM as long as the task.
 * Its address comes before the task's own records: PyArrow has neither Hadoop's file systems nor the task's credentials.
 */
public class WorkerFiles implements FlatMapFunction {
    private final Broadcast configuration;

    public WorkerFiles(JavaSparkContext context) {
        configuration = context.broadcast(new SerializableConfiguration(context.hadoopConfiguration()));
    }

    public Iterator call(Object records) throws IOException {
        SerializableConfiguration shared = (SerializableConfiguration) configuration.value();
        FileServer server = new FileServer(shared.value(), UserGroupInformation.getCurrentUser());
        TaskContext.get().addTaskCompletionListener(server);
        return new Preceded(server.address(), (Iterator) records);
    }

    /** Frees the executors' copies of the configuration, when all tasks are done. */
    public void close() {
        configuration.destroy();
    }

    private static class Preceded implements Iterator {
        private Object first;
        private final Iterator rest;

        Preceded(Object first, Iterator rest) {
            this.first = first;
            this.rest = rest;
        }

        public boolean hasNext() {
            return first != null || rest.hasNext();
        }

        public Object next() {
            Object next = first == null ? rest.next() : first;
            first = null;
            return next;
        }
    }
}
