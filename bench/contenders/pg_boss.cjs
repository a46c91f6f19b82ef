// pg-boss: several loops that fetch and complete batches of 500, which is quicker than its polling workers; those for latency.
"use strict";

const PgBoss = require("pg-boss");
const { connection, monotonic, pause, payload, run } = require("./link.cjs");

const BATCH = 500;
const LOOPS = 4;
const QUEUE = "bench";

async function open(task) {
  const boss = new PgBoss({ ...connection(task.url), max: 10, supervise: false, schedule: false });
  boss.on("error", (error) => console.error(error.message));
  await boss.start();
  return boss;
}

const rows = (start, number) => Array.from({ length: number }, (_, n) => ({ name: QUEUE, data: payload(start + n) }));

async function prepare(task) {
  const boss = await open(task);
  await boss.createQueue(QUEUE);
  for (let start = 0; start < task.jobs; start += 1000) await boss.insert(rows(start, Math.min(1000, task.jobs - start)));
  await boss.stop({ graceful: false, wait: true });
}

async function work(task, line) {
  const boss = await open(task);
  await line.ready();
  if (task.work === "pick-up") {
    await boss.work(QUEUE, { pollingIntervalSeconds: 0.5 }, async ([job]) => {
      line.began[job.data.order_id] = monotonic();
      line.done += 1;
    });
    await line.stopped();
  } else {
    const state = { stopping: false };
    const loops = Array.from({ length: LOOPS }, () => loop(boss, line, state));
    await line.stopped();
    state.stopping = true;
    await Promise.all(loops);
  }
  await boss.stop({ graceful: false, wait: true });
}

async function loop(boss, line, state) {
  const handle = async () => {
    line.done += 1;
  };
  while (!state.stopping) {
    const jobs = await boss.fetch(QUEUE, { batchSize: BATCH });
    if (jobs.length === 0) {
      await pause(20);
      continue;
    }
    await Promise.all(jobs.map(handle));
    await boss.complete(QUEUE, jobs.map((job) => job.id));
  }
}

async function measure(task) {
  const boss = await open(task);
  const times = [];
  const began = monotonic();
  if (task.work === "start-bulk") {
    for (let start = 0; start < task.jobs; start += 1000) await boss.insert(rows(start, 1000));
  } else {
    for (let number = 0; number < task.jobs; number++) {
      if (task.options.pause) await pause(1000 * task.options.pause);
      times.push(monotonic());
      await boss.send(QUEUE, payload(number));
    }
  }
  const rate = task.jobs / (monotonic() - began);
  await boss.stop({ graceful: false, wait: true });
  return { rate, times };
}

run({ prepare, work, measure });
