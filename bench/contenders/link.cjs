// How a contender speaks with the harness: see link.py. Here a contender gives `run` the functions prepare(task), work(task, line) and measure(task).
"use strict";

const readline = require("node:readline");

const TICK = 5;

const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");

/** Seconds on the clock that Python's time.monotonic() shows too. */
const monotonic = () => Number(process.hrtime.bigint()) / 1e9;

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** The same for every contender. */
const payload = (number) => ({ order_id: number, who: "somebody", amount: 99 });

class Line {
  done = 0;
  began = {};
  #lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

  async ready() {
    say({ ready: true });
    await this.#lines.next();
  }

  async stopped() {
    let last = 0;
    const ticking = setInterval(() => {
      if (this.done !== last) say({ done: (last = this.done) });
    }, TICK);
    await this.#lines.next();
    clearInterval(ticking);
  }
}

/** What drivers take instead of a URL: some URLs of sockets are none for Node. */
function connection(url) {
  const [, user, password, host, port, database, query] =
    /^postgres(?:ql)?:\/\/(?:([^:@/]*)(?::([^@/]*))?@)?([^:/?]*)(?::(\d+))?\/([^?]*)(?:\?(.*))?$/.exec(url);
  const more = new URLSearchParams(query);
  const plain = (text) => (text ? decodeURIComponent(text) : undefined);
  return {
    user: plain(user) ?? more.get("user") ?? undefined,
    password: plain(password) ?? more.get("password") ?? undefined,
    host: plain(host) ?? more.get("host") ?? undefined,
    port: Number(port ?? more.get("port") ?? 5432),
    database: plain(database),
  };
}

async function run({ prepare, work, measure }) {
  const task = JSON.parse(process.argv[2]);
  let result = {};
  if (task.step === "prepare") await prepare(task);
  else if (task.step === "measure") result = await measure(task);
  else {
    const line = new Line();
    await work(task, line);
    result = { done: line.done, began: line.began };
  }
  process.stdout.write(JSON.stringify({ result }) + "\n", () => process.exit(0));
}

module.exports = { connection, monotonic, pause, payload, run };
process.on("unhandledRejection", (error) => {
  console.error(String(error?.stack ?? error).split("\n").reverse().join("\n"));
  process.exit(1);
});
