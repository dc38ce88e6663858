package halfop;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.python.PythonUtils;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Scala's sequences from elements that Python passes in few calls: of a list it would pass each element by a call. */
public class Seqs {
    /** What stands for no element: Python passes an object of Java's faster than a null. */
    public static final Object END = new Object();

    private Seqs() {
    }

    /** Returns the elements of a sequence, or none for END, and then those that are given, up to the first END. */
    public static Object and(
        Object before, Object a, Object b, Object c, Object d, Object e, Object f, Object g, Object h,
        Object i, Object j, Object k, Object l, Object m, Object n, Object o, Object p
    ) {
        List<Object> found = new ArrayList<Object>();
        if (before != END) {
            found.addAll(CollectionConverters.asJava((Seq) before));
        }
        Object[] given = new Object[] {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p};
        for (int at = 0; at < given.length && given[at] != END; at++) {
            found.add(given[at]);
        }
        return PythonUtils.toSeq(found);
    }
}
