package halfop;

import sun.misc.Signal;
import sun.misc.SignalHandler;

/**
 * SIGTERM and SIGINT of the JVM, passed to the Python driver, which stops when its step is done. spark-submit is the JVM,
 * so whoever stops a job signals the JVM; left alone it would stop at once, in the middle of a commit.
 */
public class StopSignals implements SignalHandler {
    private final ProcessHandle driver;

    private StopSignals(ProcessHandle driver) {
        this.driver = driver;
    }

    public static void passTo(ProcessHandle driver) {
        StopSignals handler = new StopSignals(driver);
        Signal.handle(new Signal("TERM"), handler);
        Signal.handle(new Signal("INT"), handler);
    }

    public void handle(Signal signal) {
        if (driver.isAlive()) {
            driver.destroy();
        } else {
            System.exit(128 + signal.getNumber());
        }
    }
}
