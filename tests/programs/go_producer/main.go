// Sends transactional messages, and answers the questions about them until its standard input ends.
//
// Arguments: name server, topic, plan file, truth file, as GrpcProducer.java has them in tests/systems/broker.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type listener struct {
	lock  sync.Mutex
	asked map[string]int
	lost  map[string]bool
}

func (l *listener) answer(key, plan string) primitive.LocalTransactionState {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.lost[key] {
		return primitive.RollbackMessageState
	}
	at := min(l.asked[key], len(plan)-1)
	l.asked[key]++
	switch plan[at] {
	case 'C':
		return primitive.CommitMessageState
	case 'R':
		return primitive.RollbackMessageState
	}
	return primitive.UnkonwnState
}

// What its sender believes lost may be stored all the same; then it is asked about, and rolled back.
func (l *listener) loses(key string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.lost[key] = true
}

func (l *listener) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return l.answer(message.GetKeys(), message.GetProperty("plan"))
}

func (l *listener) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	return l.answer(message.GetKeys(), message.GetProperty("plan"))
}

// Every third body is so long that the client compresses it.
func body(number int, key string) string {
	text := "订单 😀 " + key
	if number%3 == 0 {
		return strings.Repeat(text, 1000)
	}
	return text
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	namesrv, topic := os.Args[1], os.Args[2]
	rlog.SetLogLevel("error")
	listens := &listener{asked: map[string]int{}, lost: map[string]bool{}}
	keys := primitive.Credentials{AccessKey: os.Getenv("ROCKETMQ_ACCESS_KEY"), SecretKey: os.Getenv("ROCKETMQ_SECRET_KEY")}
	options := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		producer.WithGroupName(topic),
		producer.WithSendMsgTimeout(20 * time.Second),
		producer.WithRetry(0),
		producer.WithCredentials(keys),
	}
	if os.Getenv("ROCKETMQ_TRACE") != "" {
		options = append(options, producer.WithTrace(&primitive.TraceConfig{
			GroupName: topic, Access: primitive.Local, NamesrvAddrs: []string{namesrv},
		}))
	}
	sender, err := rocketmq.NewTransactionProducer(listens, options...)
	must(err)
	must(sender.Start())
	plans, err := os.Open(os.Args[3])
	must(err)
	truth, err := os.Create(os.Args[4])
	must(err)
	lines := bufio.NewScanner(plans)
	number, plan := 0, ""
	send := func(key string) error {
		message := primitive.NewMessage(topic, []byte(body(number, key))).WithKeys([]string{key})
		message.WithProperty("plan", plan)
		_, err := sender.SendMessageInTransaction(context.Background(), message)
		if err != nil {
			listens.loses(key)
		}
		if err == nil || number > 0 { // a first message that is not taken is for the test to see
			_, failed := fmt.Fprintf(truth, "%s\t%s\t%t\n", key, plan, err == nil)
			must(failed)
		}
		return err
	}
	for ; lines.Scan(); number++ {
		plan = lines.Text()
		err := send(fmt.Sprintf("go-%d", number))
		for again := 1; err != nil; again++ {
			if number == 0 {
				must(err)
			}
			time.Sleep(200 * time.Millisecond)
			err = send(fmt.Sprintf("go-%d-%d", number, again))
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	must(err)
	must(sender.Shutdown())
}
