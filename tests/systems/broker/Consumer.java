import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes topics from their beginnings, and writes a line for each message: topic, queue, UNIQ_KEY, length of the body.
 *
 * It ends when `expect` messages have come and no other for `quiet` seconds, or after `linger` seconds.
 *
 * Arguments: the file to write, topics. Properties: namesrv, group, expect, quiet, linger.
 */
public final class Consumer {
    public static void main(String[] args) {
        try (PrintWriter out = new PrintWriter(Path.of(args[0]).toFile(), "UTF-8")) {
            run(args, out);
        } catch (Throwable e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1); // the client's threads would keep it alive
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] args, PrintWriter out) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(System.getProperty("group"));
        consumer.setNamesrvAddr(System.getProperty("namesrv"));
        consumer.setInstanceName("consumer-" + ProcessHandle.current().pid());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (int i = 1; i < args.length; i++) {
            consumer.subscribe(args[i], "*");
        }
        AtomicLong number = new AtomicLong();
        AtomicLong newest = new AtomicLong(System.nanoTime());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (out) {
                for (MessageExt each : messages) {
                    String key = each.getProperty("UNIQ_KEY");
                    out.println(each.getTopic() + "\t" + each.getQueueId() + "\t" + key + "\t" + each.getBody().length);
                    number.incrementAndGet();
                }
                newest.set(System.nanoTime());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long end = System.nanoTime() + Integer.getInteger("linger") * 1_000_000_000L;
        long quiet = Integer.getInteger("quiet") * 1_000_000_000L;
        while (System.nanoTime() < end) {
            Thread.sleep(50);
            if (number.get() >= Integer.getInteger("expect") && System.nanoTime() > newest.get() + quiet) {
                break;
            }
        }
        synchronized (out) {
            out.flush();
        }
    }
}
