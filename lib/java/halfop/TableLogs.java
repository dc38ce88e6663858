package halfop;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.delta.kernel.ScanBuilder;
import io.delta.kernel.data.ColumnVector;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.MapValue;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.expressions.Column;
import io.delta.kernel.expressions.Expression;
import io.delta.kernel.expressions.Literal;
import io.delta.kernel.expressions.Predicate;
import io.delta.kernel.hook.PostCommitHook;
import io.delta.kernel.internal.DeltaLogActionUtils;
import io.delta.kernel.internal.InternalScanFileUtils;
import io.delta.kernel.internal.SnapshotImpl;
import io.delta.kernel.internal.TableImpl;
import io.delta.kernel.internal.actions.AddFile;
import io.delta.kernel.internal.snapshot.LogSegment;
import io.delta.kernel.internal.util.FileNames;
import io.delta.kernel.internal.util.VectorUtils;
import io.delta.kernel.types.StructType;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.FileStatus;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSError;

/**
 * Logs of Delta tables, read and written by Delta Kernel in few calls, whose arguments and results are plain values or JSON:
 * Python calls Java over a socket, and with Kernel's own classes every file of a table would cost it several calls.
 */
public class TableLogs {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long NEWEST = -1L;

    final Engine engine;
    private final Snapshots snapshots;
    private List<Object[]> waiting = null;

    public TableLogs(Configuration conf) {
        this.engine = DefaultEngine.create(conf);
        this.snapshots = new Snapshots(engine, conf);
    }

    // ---- snapshots ----

    /** Returns what a table is at a version, or at its newest if that is below 0; null if there is no table. */
    public String look(String path, long version) throws IOException {
        SnapshotImpl snapshot = snapshot(path, version);
        if (snapshot == null) {
            return null;
        }
        Map<String, Object> about = new LinkedHashMap<String, Object>();
        about.put("version", Long.valueOf(snapshot.getVersion()));
        about.put("schema", snapshot.getSchema().toJson());
        about.put("names", snapshot.getSchema().fieldNames());
        about.put("partitions", snapshot.getPartitionColumnNames());
        about.put("properties", properties(snapshot));
        about.put("reader", Integer.valueOf(snapshot.getProtocol().getMinReaderVersion()));
        about.put("writer", Integer.valueOf(snapshot.getProtocol().getMinWriterVersion()));
        about.put("features", snapshot.getProtocol().getWriterFeatures());
        LogSegment log = snapshot.getLogSegment();
        Optional checkpoint = log.getCheckpointVersionOpt();
        about.put("checkpoint", checkpoint.isPresent() ? checkpoint.get() : Long.valueOf(-1L));
        about.put("empty", empty(log.getDeltas()));
        return JSON.writeValueAsString(about);
    }

    /** Returns the table's properties, with the columns of its clustering as Spark shows them. */
    private static Map<String, Object> properties(SnapshotImpl snapshot) throws IOException {
        Map<String, Object> found = new LinkedHashMap<String, Object>(snapshot.getTableProperties());
        if (snapshot.getProtocol().getWriterFeatures().contains("clustering")) {
            List<Object> names = new ArrayList<Object>();
            for (Object column : (List) snapshot.getPhysicalClusteringColumns().orElse(new ArrayList())) {
                names.add(((Column) column).getNames());
            }
            found.put("clusteringColumns", JSON.writeValueAsString(names));
        }
        return found;
    }

    /** Returns the versions of commits without a byte: Kernel takes them for commits that do nothing. */
    private static List<Object> empty(List commits) {
        List<Object> found = new ArrayList<Object>();
        for (Object commit : commits) {
            FileStatus file = (FileStatus) commit;
            if (file.getSize() == 0L) {
                found.add(Long.valueOf(FileNames.deltaVersion(file.getPath())));
            }
        }
        return found;
    }

    /** Returns the number under which an application has written to the table last; -1 if it has not. */
    public long marker(String path, String app) throws IOException {
        SnapshotImpl snapshot = snapshot(path, NEWEST);
        Optional found = snapshot == null ? Optional.empty() : snapshot.getLatestTransactionVersion(engine, app);
        return found.isPresent() ? ((Long) found.get()).longValue() : -1L;
    }

    /**
     * Returns the files of a version that may hold rows which meet the condition, each as path, size, partition and whether
     * a clustering has laid it out; null if they are too many or too large.
     */
    public String files(String path, long version, String where, long mostFiles, long mostBytes) throws IOException {
        ScanBuilder scan = snapshot(path, version).getScanBuilder();
        if (where != null) {
            scan = scan.withFilter(predicate((List) JSON.readValue(where, Object.class)));
        }
        List<Object> found = new ArrayList<Object>();
        long bytes = 0L;
        CloseableIterator batches = scan.build().getScanFiles(engine);
        try {
            while (batches.hasNext()) {
                CloseableIterator rows = ((FilteredColumnarBatch) batches.next()).getRows();
                try {
                    while (rows.hasNext()) {
                        Row row = (Row) rows.next();
                        FileStatus file = InternalScanFileUtils.getAddFileStatus(row);
                        bytes += file.getSize();
                        if (found.size() >= mostFiles || bytes > mostBytes) {
                            return null;
                        }
                        Map partition = InternalScanFileUtils.getPartitionValues(row);
                        Optional tags = new AddFile(row.getStruct(InternalScanFileUtils.ADD_FILE_ORDINAL)).getTags();
                        boolean laidOut = tags.isPresent() && VectorUtils.toJavaMap((MapValue) tags.get()).containsKey("ZCUBE_ID");
                        found.add(Arrays.asList(new Object[] {
                            file.getPath(), Long.valueOf(file.getSize()), partition, Boolean.valueOf(laidOut)
                        }));
                    }
                } finally {
                    Snapshots.close(rows);
                }
            }
        } finally {
            Snapshots.close(batches);
        }
        return JSON.writeValueAsString(found);
    }

    private static Predicate predicate(List condition) {
        String sign = (String) condition.get(0);
        List<Expression> operands = new ArrayList<Expression>();
        if (sign.equals("AND") || sign.equals("OR")) {
            operands.add(predicate((List) condition.get(1)));
            operands.add(predicate((List) condition.get(2)));
        } else {
            operands.add(new Column((String) condition.get(1)));
            if (condition.size() > 2) {
                operands.add(literal((String) condition.get(2), condition.get(3)));
            }
        }
        return new Predicate(sign, operands);
    }

    private static Literal literal(String type, Object value) {
        if (type.equals("string")) {
            return Literal.ofString((String) value);
        } else if (type.equals("int")) {
            return Literal.ofInt(((Number) value).intValue());
        } else if (type.equals("long")) {
            return Literal.ofLong(((Number) value).longValue());
        } else if (type.equals("boolean")) {
            return Literal.ofBoolean(((Boolean) value).booleanValue());
        } else if (type.equals("timestamp")) {
            return Literal.ofTimestamp(((Number) value).longValue());
        }
        throw new IllegalArgumentException("no literal of type " + type);
    }

    SnapshotImpl snapshot(String path, long version) throws IOException {
        return snapshots.of(path, version);
    }

    // ---- commits of the past ----

    /**
     * Returns the actions of some kinds in the commits after one version, up to another: files added as path, size and
     * whether they bring rows, the times when files were removed, and how often the table's settings were changed.
     */
    public String changes(String path, long after, long upto, String kinds) throws IOException {
        Set<DeltaLogActionUtils.DeltaAction> wanted = new HashSet<DeltaLogActionUtils.DeltaAction>();
        for (Object kind : kinds.split(" ")) {
            wanted.add(DeltaLogActionUtils.DeltaAction.valueOf((String) kind));
        }
        List<Object> added = new ArrayList<Object>();
        List<Object> removed = new ArrayList<Object>();
        long changed = 0L;
        TableImpl table = (TableImpl) TableImpl.forPath(engine, path);
        CloseableIterator batches = table.getChanges(engine, after + 1L, upto, wanted);
        try {
            while (batches.hasNext()) {
                ColumnarBatch batch = (ColumnarBatch) batches.next();
                ColumnVector adds = column(batch, "add");
                ColumnVector removes = column(batch, "remove");
                ColumnVector settings = column(batch, "metaData");
                for (int row = 0; row < batch.getSize(); row++) {
                    if (adds != null && !adds.isNullAt(row)) {
                        added.add(Arrays.asList(new Object[] {
                            field(adds, "path").getString(row),
                            Long.valueOf(field(adds, "size").getLong(row)),
                            Boolean.valueOf(field(adds, "dataChange").getBoolean(row))
                        }));
                    }
                    if (removes != null && !removes.isNullAt(row)) {
                        ColumnVector at = field(removes, "deletionTimestamp");
                        removed.add(Long.valueOf(at.isNullAt(row) ? 0L : at.getLong(row)));
                    }
                    if (settings != null && !settings.isNullAt(row)) {
                        changed++;
                    }
                }
            }
        } finally {
            Snapshots.close(batches);
        }
        Map<String, Object> found = new LinkedHashMap<String, Object>();
        found.put("added", added);
        found.put("removed", removed);
        found.put("changed", Long.valueOf(changed));
        return JSON.writeValueAsString(found);
    }

    private static ColumnVector column(ColumnarBatch batch, String name) {
        int at = batch.getSchema().indexOf(name);
        return at < 0 ? null : batch.getColumnVector(at);
    }

    private static ColumnVector field(ColumnVector of, String name) {
        return of.getChild(((StructType) of.getDataType()).indexOf(name));
    }

    // ---- commits, and the upkeep that they make due ----

    /** Starts a commit. `created` is what a new table is to be; null if there is one. A null `app` leaves no marker. */
    public TableCommit begin(String path, String created, String app, long number) throws IOException {
        return new TableCommit(this, path, created == null ? null : (Map) JSON.readValue(created, Object.class), app, number);
    }

    /** Leaves what commits make due to `upkeep`. */
    public synchronized void deferUpkeep() {
        waiting = new ArrayList<Object[]>();
    }

    /** Does, or notes, what a commit has made due; returns what failed. */
    String due(String path, List hooks) throws IOException {
        List<Object[]> found = new ArrayList<Object[]>();
        for (Object hook : hooks) {
            found.add(new Object[] {path, hook});
        }
        synchronized (this) {
            if (waiting != null) {
                waiting.addAll(found);
                return "[]";
            }
        }
        return done(found);
    }

    /** Does what commits have left; returns each path and problem of what failed, which undoes no commit. */
    public String upkeep() throws IOException {
        List<Object[]> found;
        synchronized (this) {
            found = waiting == null ? new ArrayList<Object[]>() : waiting;
            waiting = new ArrayList<Object[]>();
        }
        return done(found);
    }

    private String done(List<Object[]> hooks) throws IOException {
        List<Object> failed = new ArrayList<Object>();
        for (Object each : hooks) {
            Object[] hook = (Object[]) each;
            try {
                ((PostCommitHook) hook[1]).threadSafeInvoke(engine);
            } catch (FSError error) { // Hadoop's word for a disk that fails, which is no exception
                failed.add(Arrays.asList(new Object[] {hook[0], error.toString()}));
            } catch (Exception error) {
                failed.add(Arrays.asList(new Object[] {hook[0], error.toString()}));
            }
        }
        return JSON.writeValueAsString(failed);
    }
}
