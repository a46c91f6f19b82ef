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

  // Live

  const button = document.getElementById("pause-live");
  let stopped = false;
  let source = null;
  let timer = null;
  let missed = false;

  const isBusy = () => {
    if (document.querySelector("dialog[open]")) return true;
    const active = document.activeElement;
    if (active && live().contains(active) && active.matches("input:not([type=checkbox]), textarea, select")) return true;
    const selection = document.getSelection();
    return Boolean(selection && !selection.isCollapsed && live().contains(selection.anchorNode));
  };

  const refresh = () => {
    if (stopped || document.hidden || isBusy()) {
      missed = true;
      return;
    }
    missed = false;
    htmx.trigger(live(), "refresh");
  };

  const disconnect = () => {
    if (source) source.close();
    clearInterval(timer);
    source = timer = null;
  };

  const connect = () => {
    if (!live().hasAttribute("data-live") || source || timer) return;
    const events = document.body.dataset.events;
    if (!events) {
      timer = setInterval(refresh, 5000);
      return;
    }
    source = new EventSource(events);
    source.addEventListener("changed", refresh);
    source.addEventListener("closed", () => location.reload());
  };

  const setStopped = (value) => {
    stopped = value;
    button.setAttribute("aria-pressed", String(value));
    button.querySelector(".word").textContent = value ? "stopped" : "live";
    if (value) disconnect();
    else {
      connect();
      refresh();
    }
  };

  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => setStopped(!stopped));
  }
  // A tab in the background does nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect();
    else if (!stopped) {
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
      p: () => button && setStopped(!stopped),
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
  if (!document.hidden) connect();
})();
