// graphile-worker, as its page on performance sets it up: a local queue of 500, completions in batches.
"use strict";

const { makeWorkerUtils, run: runWorker, Logger } = require("graphile-worker");
const { Pool } = require("pg");
const { connection, monotonic, pause, payload, run } = require("./link.cjs");

const CONCURRENCY = 100;
const logger = new Logger(() => () => {});

const pool = (task, max) => new Pool({ ...connection(task.url), max });

async function utils(task) {
  const pgPool = pool(task, 2);
  const made = await makeWorkerUtils({ pgPool, logger });
  return { pgPool, made };
}

const specs = (start, number) =>
  Array.from({ length: number }, (_, n) => ({ identifier: "bench", payload: payload(start + n) }));

async function prepare(task) {
  const { pgPool, made } = await utils(task);
  await made.migrate();
  for (let start = 0; start < task.jobs; start += 1000) await made.addJobs(specs(start, Math.min(1000, task.jobs - start)));
  await made.release();
  await pgPool.end();
}

async function work(task, line) {
  const handle =
    task.work === "pick-up"
      ? async ({ order_id }) => {
          line.began[order_id] = monotonic();
          line.done += 1;
        }
      : async () => {
          line.done += 1;
        };
  // The local queue is for throughput; for latency its documentation advises against it.
  const batching =
    task.work === "pick-up" ? {} : { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
  const pgPool = pool(task, 20);
  await line.ready();
  const runner = await runWorker({
    pgPool,
    taskList: { bench: handle },
    noHandleSignals: true,
    preset: { worker: { concurrentJobs: CONCURRENCY, logger, ...batching } },
  });
  await line.stopped();
  await runner.stop();
  await pgPool.end();
}

async function measure(task) {
  const { pgPool, made } = await utils(task);
  const times = [];
  const began = monotonic();
  if (task.work === "start-bulk") {
    for (let start = 0; start < task.jobs; start += 1000) await made.addJobs(specs(start, 1000));
  } else {
    for (let number = 0; number < task.jobs; number++) {
      if (task.options.pause) await pause(1000 * task.options.pause);
      times.push(monotonic());
      await made.addJob("bench", payload(number));
    }
  }
  const rate = task.jobs / (monotonic() - began);
  await made.release();
  await pgPool.end();
  return { rate, times };
}

run({ prepare, work, measure });
