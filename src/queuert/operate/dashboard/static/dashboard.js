// What the page can do beyond reading: it updates itself, and is used by keyboard.
// Everything here is optional. Without it, all pages and forms work.
"use strict";
(() => {
  const live = () => document.getElementById("live");
  const ask = document.getElementById("ask");
  const help = document.getElementById("help");
  const search = document.getElementById("search");

  // Times in the zone of the reader

  const dress = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      if (time.matches(".local")) time.textContent = moment.toLocaleString(undefined, { timeZoneName: "short" });
      else if (!time.dataset.dressed) {
        time.dataset.dressed = "1";
        time.title = `${moment.toLocaleString(undefined, { timeZoneName: "short" })} · ${time.title}`;
      }
    }
    for (const button of root.querySelectorAll("[data-copy]")) button.hidden = false;
    const range = root.querySelector("[data-scrub]");
    if (range) range.hidden = false;
  };

  // Live: the page is read again after each change, and every few seconds. If that fails, it shows
  // what it has, how old that is, and tries again.

  const POLL = 5; // seconds, without events
  const SILENCE = 15; // seconds without an event: some proxies hold them back
  const AGAIN = 2; // seconds after a failure
  const PATIENCE = 10; // seconds that an answer may take

  const address = document.body.dataset.live;
  const button = document.getElementById("pause-live");
  const banner = document.getElementById("trouble");
  let trouble = document.body.dataset.trouble || "";
  let stopped = false;
  let source = null;
  let reading = false;
  let again = false;
  let missed = false;
  let shownAt = Date.now();
  let triedAt = shownAt;

  const isBusy = () => {
    if (document.querySelector("dialog[open]")) return true;
    const active = document.activeElement;
    if (active && live().contains(active) && active.matches("input:not([type=checkbox]), textarea, select")) return true;
    const selection = document.getSelection();
    return Boolean(selection && !selection.isCollapsed && live().contains(selection.anchorNode));
  };

  const length = (seconds) => {
    if (seconds < 90) return `${seconds} s`;
    return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
  };

  const since = (moment) => Math.round((Date.now() - moment) / 1000);

  const tell = () => {
    const age = since(shownAt);
    const state = stopped ? "stopped" : trouble ? "not up to date" : age > SILENCE + AGAIN ? "waiting" : "live";
    button.dataset.state = state.replaceAll(" ", "-");
    button.setAttribute("aria-pressed", String(stopped));
    button.querySelector(".word").textContent = state === "live" ? state : `${state}, ${length(age)} old`;
    const text = trouble && !stopped ? `Not up to date: ${trouble}. The page tries again every ${AGAIN} seconds.` : "";
    if (banner.textContent !== text) banner.textContent = text;
    banner.hidden = !text;
  };

  // Why it could not be read, or nothing.
  const read = async () => {
    const asked = Date.now();
    const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE * 1000) });
    const text = await answer.text();
    if (answer.status === 403) location.reload();
    if (!answer.ok && answer.status !== 404) return `the server answers ${answer.status}`;
    if (!text.includes('<main id="live"')) return "the server answers with another page: load the page again";
    if (isBusy()) {
      missed = true;
      return "";
    }
    await htmx.swap({ text, sourceElement: document.body, target: live(), select: "#live", swap: "outerMorph" });
    shownAt = asked;
    return "";
  };

  const refresh = async () => {
    if (!address) return;
    again = reading; // what is being read may be from before a change
    if (reading) return;
    if (stopped || document.hidden || isBusy()) {
      missed = true;
      return;
    }
    missed = false;
    reading = true;
    triedAt = Date.now();
    try {
      trouble = await read();
    } catch {
      trouble = "the server does not answer";
    }
    reading = false;
    if (!trouble) connect();
    tell();
    if (again) refresh();
  };

  const disconnect = () => {
    if (source) source.close();
    source = null;
  };

  const connect = () => {
    const events = document.body.dataset.events;
    if (!events || source || stopped || document.hidden) return;
    source = new EventSource(events);
    source.addEventListener("changed", refresh);
    source.addEventListener("closed", () => location.reload());
    source.addEventListener("error", () => {
      if (source && source.readyState === EventSource.CLOSED) disconnect(); // an answer that is no stream
      refresh();
    });
  };

  const setStopped = (value) => {
    stopped = value;
    if (value) disconnect();
    else {
      connect();
      refresh();
    }
    tell();
  };

  if (address) {
    button.hidden = false;
    button.addEventListener("click", () => setStopped(!stopped));
    setInterval(() => {
      if (since(triedAt) >= (trouble ? AGAIN : source ? SILENCE : POLL)) refresh();
      tell();
    }, 1000);
    window.addEventListener("online", refresh);
  }
  // A tab in the background does nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect();
    else if (address && !stopped) {
      connect();
      refresh();
    }
  });
  document.addEventListener("selectionchange", () => {
    if (missed && !isBusy()) refresh();
  });

  document.addEventListener("htmx:after:swap", () => {
    dress(document);
    marks();
    chosen();
    if (ask.firstElementChild && !ask.open) {
      ask.showModal();
      const first = ask.querySelector("textarea, input:not([type=hidden], [type=checkbox]), button");
      if (first) first.focus();
    }
  });
  ask.addEventListener("close", () => {
    ask.replaceChildren();
    if (missed) refresh();
  });
  document.addEventListener("focusout", () => {
    if (missed) setTimeout(refresh);
  });
  ask.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) {
      event.preventDefault();
      ask.close();
    }
  });

  // Rows

  let current = null;
  const rows = () => [...document.querySelectorAll("main [data-row]")];
  const marks = () => {
    for (const row of rows()) row.classList.toggle("current", Boolean(current) && key(row) === current);
  };
  const key = (row) => row.id || row.querySelector("[data-open]")?.href || "";
  const move = (by) => {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => key(row) === current);
    const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))];
    current = key(next);
    marks();
    next.scrollIntoView({ block: "nearest" });
    next.querySelector("[data-open]")?.focus({ preventScroll: true });
  };
  const row = () => rows().find((each) => key(each) === current);

  const chosen = () => {
    const bar = document.querySelector(".chosen");
    if (!bar) return;
    const number = document.querySelectorAll("#chosen input[name=chain]:checked").length;
    bar.hidden = number === 0;
    document.getElementById("chosen-count").textContent = String(number);
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches("#chosen input[name=chain]")) chosen();
    if (event.target.matches("[data-scrub]")) {
      const links = document.querySelectorAll("[data-moment]");
      const link = links[Number(event.target.value)];
      if (link) location.assign(link.href);
    }
  });
  document.addEventListener("input", (event) => {
    if (!event.target.matches("[data-scrub]")) return;
    const link = document.querySelectorAll("[data-moment]")[Number(event.target.value)];
    if (link) document.getElementById("moment-text").textContent = link.textContent;
  });

  // Keys

  const openHelp = document.getElementById("open-help");
  openHelp.hidden = false;
  openHelp.addEventListener("click", () => help.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
    if (document.querySelector("dialog[open]")) return;
    const actions = {
      "/": () => search.focus(),
      "?": () => help.showModal(),
      j: () => move(1),
      k: () => move(-1),
      p: () => address && setStopped(!stopped),
      x: () => {
        const box = row()?.querySelector("input[name=chain]");
        if (box) box.click();
      },
    };
    const action = actions[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  });

  // Copying, also over plain HTTP, where browsers have no clipboard for scripts

  const copy = (text) => {
    if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done ? Promise.resolve() : Promise.reject(new Error("not copied"));
  };
  document.addEventListener("click", (event) => {
    const from = event.target.closest("[data-copy]");
    if (!from) return;
    copy(from.dataset.copy).then(
      () => (from.title = "Copied"),
      () => (from.title = "It could not be copied"),
    );
  });

  // On a phone, the links to the pages are wider than the screen.
  const here = document.querySelector(".pages [aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft - (here.parentElement.clientWidth - here.clientWidth) / 2;

  dress(document);
  chosen();
  if (address) {
    connect();
    tell();
  }
})();
