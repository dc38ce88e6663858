// producer.js ENDPOINTS TOPIC PLAN TRUTH: what GrpcProducer.java does, by RocketMQ's Node.js client.
'use strict';

const fs = require('node:fs');
const { setTimeout: sleep } = require('node:timers/promises');
const { Producer } = require('rocketmq-client-nodejs');
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const [endpoints, topic, plans, truth] = process.argv.slice(2);
const UNDER_WAY = -1;
const FAILED = -2;
const ANSWERS = {
  C: TransactionResolution.COMMIT,
  R: TransactionResolution.ROLLBACK,
  U: TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
};
const asked = new Map();

async function check(message) {
  const [key] = message.keys;
  const plan = message.properties.get('plan');
  if (asked.get(key) >= 0) {
    asked.set(key, asked.get(key) + 1);
  }
  const known = asked.get(key) ?? plan.length;
  return ANSWERS[known === FAILED ? 'R' : known === UNDER_WAY ? 'U' : plan[Math.min(known, plan.length - 1)]];
}

async function send(producer, key, plan) {
  const transaction = producer.beginTransaction();
  asked.set(key, UNDER_WAY);
  try {
    const properties = new Map([['plan', plan]]);
    await producer.send({ topic, keys: [key], body: Buffer.from('body'), properties }, transaction);
  } catch (error) {
    asked.set(key, FAILED);
    await sleep(200);
    return false;
  }
  asked.set(key, 0);
  try {
    if (plan[0] !== 'U') {
      await (plan[0] === 'C' ? transaction.commit() : transaction.rollback());
    }
  } catch (error) {
    console.error(`${key} is left to be asked about: ${error}`);
  }
  return true;
}

async function main() {
  const { ROCKETMQ_ACCESS_KEY: accessKey, ROCKETMQ_SECRET_KEY: accessSecret } = process.env;
  const sessionCredentials = accessKey ? { accessKey, accessSecret } : undefined;
  const producer = new Producer({ endpoints, namespace: '', topics: [topic], sessionCredentials,
    requestTimeout: 5000, checker: { check } });
  await producer.startup();
  let number = 0;
  for (const plan of fs.readFileSync(plans, 'utf8').split('\n').filter(Boolean)) {
    let sent = false;
    while (!sent) {
      const key = `node-${number++}`;
      sent = await send(producer, key, plan);
      fs.appendFileSync(truth, `${key}\t${plan}\t${sent}\n`);
    }
  }
  fs.appendFileSync(truth, 'all\n');
  for await (const _ of process.stdin) { /* until it ends */ }
  await producer.shutdown();
  process.exit(0);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
