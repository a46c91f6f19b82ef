// The charts of the overview, drawn from the data that the page contains.
"use strict";
(() => {
  const charts = new Map();
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  const two = (number) => String(number).padStart(2, "0");
  const clock = (seconds, step) => {
    const time = new Date(seconds * 1000);
    const day = `${two(time.getMonth() + 1)}-${two(time.getDate())}`;
    return step >= 86400 ? day : `${two(time.getHours())}:${two(time.getMinutes())}`;
  };

  const options = (box, data) => {
    const grid = { stroke: colour("line"), width: 1 };
    const axis = { stroke: colour("soft"), grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    return {
      width: box.clientWidth,
      height: 190,
      padding: [8, 8, 0, 0],
      cursor: { y: false },
      scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, data.unit === "s" ? 0.1 : 1) * 1.08] } },
      axes: [{ ...axis, size: 28, values: (_, splits, __, ___, step) => splits.map((each) => clock(each, step)) }, { ...axis, size: 44 }],
      series: [
        { label: "from", value: (_, value) => (value == null ? "" : new Date(value * 1000).toLocaleString()) },
        ...data.series.map((each, at) => ({
          label: each.name,
          stroke: colour(each.colour),
          width: 2,
          dash: at ? [6 - at, 3] : undefined,
          fill: at ? undefined : `${colour(each.colour)}22`,
          // A value without neighbours makes no line.
          points: { show: each.values.filter((value) => value != null).length < 12, size: 5, fill: colour(each.colour) },
          spanGaps: false,
          value: (_, value) => (value == null ? "" : `${value} ${data.unit}`),
        })),
      ],
    };
  };

  const draw = () => {
    for (const box of document.querySelectorAll("[data-chart]")) {
      const text = box.dataset.chart;
      const known = charts.get(box);
      if (known && known.text === text) continue;
      const data = JSON.parse(text);
      const values = [data.times, ...data.series.map((each) => each.values)];
      if (known) {
        known.plot.setData(values);
        known.text = text;
        continue;
      }
      charts.set(box, { text, plot: new uPlot(options(box, data), values, box) });
    }
  };
  const again = () => {
    for (const { plot } of charts.values()) plot.destroy();
    charts.clear();
    draw();
  };

  document.addEventListener("htmx:after:swap", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) {
      width = window.innerWidth;
      again();
    }
  });
  draw();
})();
