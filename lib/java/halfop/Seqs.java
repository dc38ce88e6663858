package halfop;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.python.PythonUtils;

/** Scala's sequences from elements that Python passes in few calls: of a list it would pass each element by a call. */
public class Seqs {
    /** What stands for no element: Python passes an object of Java's faster than a null. */
    public static final Object END = new Object();

    private Seqs() {
    }

    /**
     * Adds elements, up to the first END, to those before, of which END means none. Returns Scala's sequence of all
     * once END has come, a list to call this with again until then.
     */
    @SuppressWarnings("unchecked")
    public static Object and(
        Object before, Object a, Object b, Object c, Object d, Object e, Object f, Object g, Object h,
        Object i, Object j, Object k, Object l, Object m, Object n, Object o, Object p
    ) {
        List<Object> found = before == END ? new ArrayList<Object>() : (List<Object>) before;
        for (Object each : new Object[] {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p}) {
            if (each == END) {
                return PythonUtils.toSeq(found);
            }
            found.add(each);
        }
        return found;
    }
}
