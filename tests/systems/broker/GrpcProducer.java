import java.io.FileWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Sends transactional messages by gRPC, and answers the questions about them until its standard input ends.
 *
 * Arguments: endpoints, topic, plan file, truth file. A line of the plan is what is answered first, then at each
 * question, the last one for ever: C, R or U. What cannot be sent is rolled back when it is asked about, and is sent
 * again as another message. A line of the truth file has a message's key, its plan, and whether it was sent. A message
 * of another process is answered by the last of its plan.
 */
public final class GrpcProducer {
    private static final int UNDER_WAY = -1;
    private static final int FAILED = -2;
    private static final Map<String, Integer> ASKED = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfigurationBuilder configured = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(5));
        String access = System.getenv("ROCKETMQ_ACCESS_KEY");
        if (access != null) {
            String secret = System.getenv("ROCKETMQ_SECRET_KEY");
            configured.setCredentialProvider(new StaticSessionCredentialsProvider(access, secret));
        }
        ClientConfiguration configuration = configured.build();
        Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(args[1])
            .setTransactionChecker(GrpcProducer::answer).build();
        try (FileWriter truth = new FileWriter(args[3])) {
            int number = 0;
            for (String plan : Files.readAllLines(Path.of(args[2]))) {
                boolean sent = false;
                while (!sent) {
                    String key = "java-" + number++;
                    Message message = provider.newMessageBuilder().setTopic(args[1]).setKeys(key)
                        .addProperty("plan", plan).setBody("body".getBytes(StandardCharsets.UTF_8)).build();
                    sent = send(producer, message, key, plan);
                    truth.write(key + "\t" + plan + "\t" + sent + "\n");
                    truth.flush();
                }
            }
            truth.write("all\n");
        }
        while (System.in.read() >= 0) { }
        producer.close();
        System.exit(0);
    }

    private static boolean send(Producer producer, Message message, String key, String plan) throws Exception {
        ASKED.put(key, UNDER_WAY);
        Transaction transaction = producer.beginTransaction();
        try {
            producer.send(message, transaction);
        } catch (Exception e) {
            ASKED.put(key, FAILED);
            Thread.sleep(200);
            return false;
        }
        ASKED.put(key, 0);
        try {
            if (plan.startsWith("C")) {
                transaction.commit();
            } else if (plan.startsWith("R")) {
                transaction.rollback();
            }
        } catch (Exception e) {
            System.err.println(key + " is left to be asked about: " + e);
        }
        return true;
    }

    private static TransactionResolution answer(MessageView message) {
        String plan = message.getProperties().get("plan");
        Integer known = ASKED.computeIfPresent(message.getKeys().iterator().next(), (key, n) -> n < 0 ? n : n + 1);
        int asked = known == null ? plan.length() : known;
        char answer = asked == FAILED ? 'R' : asked == UNDER_WAY ? 'U' : plan.charAt(Math.min(asked, plan.length() - 1));
        return answer == 'C' ? TransactionResolution.COMMIT
            : answer == 'R' ? TransactionResolution.ROLLBACK : TransactionResolution.UNKNOWN;
    }
}
