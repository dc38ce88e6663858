import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.namesrv.NamesrvStartup;

/** RocketMQ's own name server or broker, which dies with the process that holds its standard input. Arguments: which, its configuration. */
public final class Server {
    public static void main(String[] args) throws Exception {
        Thread watch = new Thread(Server::haltAtEndOfInput);
        watch.setDaemon(true);
        watch.start();
        String[] options = {"-c", args[1]};
        if (args[0].equals("namesrv")) {
            NamesrvStartup.main(options);
        } else {
            register(BrokerStartup.start(BrokerStartup.createBrokerController(options)));
        }
    }

    /** 5.x often registers before its own client knows the name server, and then only after 10 s again. */
    private static void register(BrokerController broker) throws InterruptedException {
        for (int i = 0; i < 20; i++) {
            Thread.sleep(250);
            broker.registerBrokerAll(true, false, true);
        }
    }

    private static void haltAtEndOfInput() {
        try {
            while (System.in.read() >= 0) {
                // nothing is ever written
            }
        } catch (java.io.IOException e) {
            // as good as its end
        }
        Runtime.getRuntime().halt(1);
    }
}
