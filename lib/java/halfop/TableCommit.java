package halfop;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.delta.kernel.Operation;
import io.delta.kernel.Transaction;
import io.delta.kernel.TransactionBuilder;
import io.delta.kernel.TransactionCommitResult;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.Row;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.expressions.Literal;
import io.delta.kernel.internal.InternalScanFileUtils;
import io.delta.kernel.internal.TableImpl;
import io.delta.kernel.internal.actions.AddFile;
import io.delta.kernel.internal.actions.SingleAction;
import io.delta.kernel.internal.types.DataTypeJsonSerDe;
import io.delta.kernel.internal.util.Utils;
import io.delta.kernel.statistics.DataFileStatistics;
import io.delta.kernel.types.StructType;
import io.delta.kernel.utils.CloseableIterable;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.DataFileStatus;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** One commit to a table, from the version of the table that it starts with. Files are given as JSON, see `rows`. */
public class TableCommit {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String ENGINE_INFO = "halfop";

    // Set-up's compiler calls no static method of an interface.
    private static final Method WRITE_CONTEXT = method(Transaction.class, "getWriteContext");
    private static final Method ACTIONS = method(Transaction.class, "generateAppendActions");
    private static final Method IN_MEMORY = method(CloseableIterable.class, "inMemoryIterable");

    private final TableLogs logs;
    private final Engine engine;
    private final String path;
    private final Transaction transaction;

    TableCommit(TableLogs logs, String path, Map created, String app, long number) {
        this.logs = logs;
        this.engine = logs.engine;
        this.path = path;
        Operation operation = created == null ? Operation.WRITE : Operation.CREATE_TABLE;
        TransactionBuilder builder =
            TableImpl.forPath(engine, path).createTransactionBuilder(engine, ENGINE_INFO, operation);
        if (created != null) {
            builder = builder.withSchema(engine, struct((String) created.get("schema")));
            builder = builder.withTableProperties(engine, (Map) created.get("properties"));
            List by = (List) created.get("partitions");
            builder = by.isEmpty() ? builder : builder.withPartitionColumns(engine, by);
        }
        if (app != null) {
            builder = builder.withTransactionId(engine, app, number);
        }
        this.transaction = builder.build(engine);
    }

    public long readVersion() {
        return transaction.getReadTableVersion();
    }

    /** Adds files to the table; returns what failed of the upkeep after the commit. */
    public String append(String files, String schema) throws IOException {
        return commit(appended(files, schema));
    }

    /** Puts files in the place of all that a version has. */
    public String replace(long version, String files, String schema) throws IOException {
        List<Row> actions = new ArrayList<Row>();
        CloseableIterator batches = logs.snapshot(path, version).getScanBuilder().build().getScanFiles(engine);
        Optional<Long> now = Optional.of(Long.valueOf(System.currentTimeMillis()));
        try {
            while (batches.hasNext()) {
                CloseableIterator rows = ((FilteredColumnarBatch) batches.next()).getRows();
                while (rows.hasNext()) { // Kernel's public API has no action that removes a file
                    AddFile file = new AddFile(((Row) rows.next()).getStruct(InternalScanFileUtils.ADD_FILE_ORDINAL));
                    actions.add(SingleAction.createRemoveFileSingleAction(file.toRemoveFileRow(true, now)));
                }
                rows.close();
            }
        } finally {
            Snapshots.close(batches);
        }
        actions.addAll(appended(files, schema));
        return commit(actions);
    }

    private String commit(List<Row> actions) throws IOException {
        Object closeable = Utils.toCloseableIterator(actions.iterator());
        CloseableIterable all = (CloseableIterable) called(IN_MEMORY, new Object[] {closeable});
        TransactionCommitResult done = transaction.commit(engine, all);
        return logs.due(path, done.getPostCommitHooks());
    }

    /** Kernel wants the files of each partition apart. */
    private List<Row> appended(String files, String schema) throws IOException {
        StructType struct = struct(schema);
        Row state = transaction.getTransactionState(engine);
        Map<Object, List<DataFileStatus>> partitions = new LinkedHashMap<Object, List<DataFileStatus>>();
        List<Row> actions = new ArrayList<Row>();
        for (Object each : (List) JSON.readValue(files, Object.class)) {
            Map file = (Map) each;
            Object partition = file.get("partition");
            if (!partitions.containsKey(partition)) {
                partitions.put(partition, new ArrayList<DataFileStatus>());
            }
            ((List) partitions.get(partition)).add(status(file, struct));
        }
        for (Object each : partitions.entrySet()) {
            Map.Entry partition = (Map.Entry) each;
            Object context = called(WRITE_CONTEXT, new Object[] {engine, state, values((Map) partition.getKey())});
            Object rows = Utils.toCloseableIterator(((List) partition.getValue()).iterator());
            CloseableIterator made = (CloseableIterator) called(ACTIONS, new Object[] {engine, state, rows, context});
            while (made.hasNext()) {
                actions.add((Row) made.next());
            }
            made.close();
        }
        return actions;
    }

    private static DataFileStatus status(Map file, StructType struct) {
        String stats = (String) file.get("stats");
        Optional known = stats == null ? Optional.empty() : DataFileStatistics.deserializeFromJson(stats, struct);
        long size = ((Number) file.get("size")).longValue();
        return new DataFileStatus((String) file.get("path"), size, ((Number) file.get("modified")).longValue(), known);
    }

    /** A partition's values are booleans. */
    private static Map<String, Literal> values(Map partition) {
        Map<String, Literal> values = new HashMap<String, Literal>();
        for (Object each : partition.entrySet()) {
            Map.Entry value = (Map.Entry) each;
            values.put((String) value.getKey(), Literal.ofBoolean(((Boolean) value.getValue()).booleanValue()));
        }
        return values;
    }

    private static StructType struct(String schema) {
        return DataTypeJsonSerDe.deserializeStructType(schema);
    }

    private static Method method(Class of, String name) {
        for (Object each : of.getMethods()) {
            Method method = (Method) each;
            if (method.getName().equals(name)) {
                return method;
            }
        }
        throw new IllegalStateException("Delta Kernel has no " + of.getName() + "." + name);
    }

    private static Object called(Method method, Object[] arguments) {
        try {
            return method.invoke(null, arguments);
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof RuntimeException) {
                throw (RuntimeException) error.getCause();
            }
            throw new IllegalStateException(error.getCause());
        }
    }
}
