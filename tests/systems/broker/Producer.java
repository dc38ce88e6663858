import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ThreadLocalRandom;

import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Sends the transactional messages of a plan file and answers checks, also those of an earlier process of its group.
 *
 * A line of the plan: topic, answers, immunity in seconds or empty, milliseconds the local transaction takes, bytes of
 * the body, with tabs between. Answers: what is answered first, then at each check, the last one for ever: C, R or U.
 *
 * Then it waits until all answers of at least `expect` messages have been asked for, `linger` seconds at most, and writes
 * the truth file.
 *
 * How many seconds all sends took is in a file of the truth file's name with `.seconds`.
 *
 * Arguments: plan file, truth file. Properties: namesrv, group, threads, expect, linger, halt (end without a goodbye once
 * all is sent), accessKey, secretKey, tls, trace, instance (the client's id after its address).
 */
public final class Producer implements TransactionListener {
    private static final class Truth {
        final StringBuilder answers = new StringBuilder();
        String topic;
        String plan;
        long halfOffset = -1;
        int queue = -1;
        int askedBytes = -1;
    }

    private final Map<String, Truth> truths = Collections.synchronizedMap(new LinkedHashMap<>());
    private final Queue<String> failures = new ConcurrentLinkedQueue<>();

    public static void main(String[] args) {
        try {
            run(args);
        } catch (Throwable e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1); // the client's threads would keep it alive
        }
    }

    private static void run(String[] args) throws Exception {
        Producer listener = new Producer();
        TransactionMQProducer producer = producer(System.getProperty("group"));
        producer.setNamesrvAddr(System.getProperty("namesrv"));
        producer.setUseTLS(Boolean.getBoolean("tls"));
        producer.setInstanceName(System.getProperty("instance", "producer-" + ProcessHandle.current().pid()));
        producer.setSendMsgTimeout(60_000);
        producer.setTransactionListener(listener);
        producer.start();
        register(producer);
        long start = System.nanoTime();
        listener.sendAll(producer, Files.readAllLines(Path.of(args[0])));
        Files.writeString(Path.of(args[1] + ".seconds"), String.valueOf((System.nanoTime() - start) / 1e9));
        boolean halt = Boolean.getBoolean("halt");
        long end = System.nanoTime() + Integer.getInteger("linger") * 1_000_000_000L;
        while (!halt && System.nanoTime() < end && !listener.allAnswered()) {
            Thread.sleep(50);
        }
        listener.write(Path.of(args[1]));
        if (halt) {
            Runtime.getRuntime().halt(listener.failures.isEmpty() ? 0 : 1);
        }
        producer.shutdown();
        System.exit(listener.failures.isEmpty() ? 0 : 1);
    }

    private static TransactionMQProducer producer(String group) throws ReflectiveOperationException {
        if (!Boolean.getBoolean("trace")) {
            return new TransactionMQProducer(group, credentials());
        }
        // versions before 4.4 have none
        return TransactionMQProducer.class.getConstructor(String.class, String.class, RPCHook.class, boolean.class, String.class)
            .newInstance(null, group, credentials(), true, null);
    }

    /** By the classes' names, because 4.3 has none of them. */
    private static RPCHook credentials() throws ReflectiveOperationException {
        String key = System.getProperty("accessKey");
        if (key == null) {
            return null;
        }
        Class<?> pair = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
        Object credentials = pair.getConstructor(String.class, String.class).newInstance(key, System.getProperty("secretKey"));
        Class<?> hook = Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook");
        return (RPCHook) hook.getConstructor(pair).newInstance(credentials);
    }

    /** The broker asks only producers that it knows, and one that sends nothing would not tell it of itself. */
    private static void register(TransactionMQProducer producer) throws Exception {
        MQClientInstance client = producer.getDefaultMQProducerImpl().getmQClientFactory();
        for (int tries = 0; !client.getTopicRouteTable().containsKey("TBW102"); tries++) {
            if (tries == 100) {
                throw new IllegalStateException("the name server knows no broker");
            }
            Thread.sleep(100);
            client.updateTopicRouteInfoFromNameServer("TBW102");
        }
        client.sendHeartbeatToAllBrokerWithLock();
    }

    private void sendAll(TransactionMQProducer producer, List<String> plan) throws InterruptedException {
        Queue<String> lines = new ConcurrentLinkedQueue<>(plan);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < Integer.getInteger("threads"); i++) {
            Thread thread = new Thread(() -> {
                for (String line = lines.poll(); line != null; line = lines.poll()) {
                    send(producer, line.split("\t", -1));
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void send(TransactionMQProducer producer, String[] line) {
        Message message = new Message(line[0], "tag", "key", letters(Integer.parseInt(line[4])));
        message.putUserProperty("plan", line[1]);
        if (!line[2].isEmpty()) {
            message.putUserProperty(MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, line[2]);
        }
        try {
            TransactionSendResult result = producer.sendMessageInTransaction(message, Long.valueOf(line[3]));
            Truth truth = truth(result.getMsgId(), line[0], line[1]);
            truth.halfOffset = result.getQueueOffset();
            truth.queue = result.getMessageQueue().getQueueId();
        } catch (Exception e) {
            failures.add(e.toString());
            StringBuilder causes = new StringBuilder("not sent");
            for (Throwable cause = e; cause != null; cause = cause.getCause()) {
                causes.append(": ").append(cause);
            }
            System.err.println(causes);
        }
    }

    /** Above 4 KiB the client will compress them. */
    private static byte[] letters(int size) {
        byte[] letters = new byte[size];
        ThreadLocalRandom random = ThreadLocalRandom.current();
        for (int i = 0; i < size; i++) {
            letters[i] = (byte) ('a' + random.nextInt(16));
        }
        return letters;
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object milliseconds) {
        try {
            Thread.sleep((Long) milliseconds);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return answer(message);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        LocalTransactionState state = answer(message);
        truth(message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX), message.getTopic(),
            message.getUserProperty("plan")).askedBytes = message.getBody().length;
        return state;
    }

    private LocalTransactionState answer(Message message) {
        String plan = message.getUserProperty("plan");
        Truth truth = truth(message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX), message.getTopic(), plan);
        synchronized (truth) {
            char answer = plan.charAt(Math.min(truth.answers.length(), plan.length() - 1));
            truth.answers.append(answer);
            return answer == 'C' ? LocalTransactionState.COMMIT_MESSAGE
                : answer == 'R' ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }

    private Truth truth(String uniq, String topic, String plan) {
        Truth truth = truths.computeIfAbsent(uniq, key -> new Truth());
        truth.topic = topic;
        truth.plan = plan;
        return truth;
    }

    private boolean allAnswered() {
        synchronized (truths) {
            return truths.size() >= Integer.getInteger("expect")
                && truths.values().stream().allMatch(t -> t.answers.length() >= t.plan.length());
        }
    }

    private void write(Path file) throws Exception {
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(file))) {
            synchronized (truths) {
                truths.forEach((uniq, t) -> out.printf(
                    "{\"uniq\": \"%s\", \"topic\": \"%s\", \"plan\": \"%s\", \"answers\": \"%s\", \"queue\": %d, \"half_offset\": %d, \"asked_bytes\": %d}%n",
                    uniq, t.topic, t.plan, t.answers, t.queue, t.halfOffset, t.askedBytes));
            }
        }
    }
}
