/* The runs' curves: means and bands over seeds, on four axes, smoothed, with toggles for methods and seeds. */
"use strict";
(() => {
  const { el, plain, number, bytes, seconds, faded, look, swatch, layoutOf, bandTrace, chartCard, DASHES } = fedkeelPage;
  const AXES = { rounds: "Rounds", bytes: "Bytes", gradients: "Gradient steps", seconds: "Seconds" };
  const AXIS_LABELS = { rounds: "communication rounds", bytes: "bytes sent, down and up, all clients", gradients: "minibatch gradients, all clients", seconds: "seconds" };
  const hidden = { methods: new Set(), seeds: new Set() };  // shared by all curves of a page
  const MANY = 8;  // methods; the bands of more hide each other, unless asked for
  const listeners = new Set();
  const settings = new Map();  // a block's controls, kept when a document is updated

  const changed = () => { for (const listener of listeners) listener(); };
  const resetCurves = () => listeners.clear();

  const roundsOf = (column) => column.rounds ?? column.values.map((_, index) => column.first + column.step * index);

  /* The points of a column, each as the mean of the last `width` ones. */
  function pointsOf(column, width) {
    const rounds = roundsOf(column);
    if (width <= 1) return { rounds, values: column.values };
    const values = column.values.map((_, index) => {
      const part = column.values.slice(Math.max(0, index + 1 - width), index + 1).filter((value) => value !== null);
      return part.length ? part.reduce((sum, value) => sum + value, 0) / part.length : null;
    });
    return { rounds, values };
  }

  /* What a run had sent, computed or taken after a round; between two known rounds on a straight line. */
  function totalAt(run, axis, round) {
    const column = axis === "rounds" ? null : run.axes[axis];
    if (!column) return axis === "rounds" ? round : null;
    const place = column.rounds ? placeIn(column.rounds, round) : (round - column.first) / column.step;
    const low = Math.max(0, Math.min(column.values.length - 1, Math.floor(place)));
    const high = Math.min(column.values.length - 1, low + 1);
    return column.values[low] + (place - low) * (column.values[high] - column.values[low]);
  }

  function placeIn(rounds, round) {
    let low = 0, high = rounds.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (rounds[middle] <= round) low = middle; else high = middle; }
    return rounds[high] === rounds[low] ? low : low + (round - rounds[low]) / (rounds[high] - rounds[low]);
  }

  const methodsOf = (page) => [...new Set(page.runs.map((run) => run.method))];

  /* Each method, and each further model of it (as accuracy/gamma), that has the column. */
  function seriesOf(page, metric, models) {
    const found = [];
    methodsOf(page).forEach((method, index) => {
      const runs = page.runs.filter((run) => run.method === method && !hidden.seeds.has(run.seed));
      const names = new Set(page.runs.filter((run) => run.method === method).flatMap((run) => Object.keys(run.columns)));
      const columns = models ? [...names].filter((name) => name === metric || name.startsWith(`${metric}/`)) : [metric];
      columns.sort().forEach((column, shift) => {
        if (!names.has(column)) return;
        const label = column === metric ? method : `${method} (${column.slice(metric.length + 1)})`;
        found.push({ method, label, column, runs: runs.filter((run) => run.columns[column]?.values.length), ...look(index, shift) });
      });
    });
    return found;
  }

  const isWhole = (run) => run.state === "finished";

  /* The mean over a series' finished runs, in the rounds that all of them have, with the least and the most. */
  function meanOf(series, width, axis) {
    const runs = series.runs.filter(isWhole);
    if (!runs.length) return null;
    const points = runs.map((run) => pointsOf(run.columns[series.column], width));
    const maps = points.slice(1).map(({ rounds, values }) => new Map(rounds.map((round, index) => [round, values[index]])));
    const mean = { rounds: [], x: [], y: [], low: [], high: [], seeds: runs.length };
    points[0].rounds.forEach((round, index) => {
      const each = [points[0].values[index], ...maps.map((map) => map.get(round))];
      if (each.some((value) => value === undefined || value === null)) return;
      mean.rounds.push(round);
      mean.x.push(average(runs.map((run) => totalAt(run, axis, round))));
      mean.y.push(average(each));
      mean.low.push(Math.min(...each));
      mean.high.push(Math.max(...each));
    });
    return mean.x.length ? mean : null;
  }

  const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  function lineOf(run, series, width, axis) {
    const { rounds, values } = pointsOf(run.columns[series.column], width);
    return { rounds, x: rounds.map((round) => totalAt(run, axis, round)), y: values };
  }

  /* Every line to draw: means with bands, or each seed; runs that have not finished always as lines of their own. */
  function linesOf(series, { width, axis, each }) {
    const mean = each ? null : meanOf(series, width, axis);
    const single = series.runs.filter((run) => each || !isWhole(run));
    return [
      ...(mean ? [{ ...mean, name: series.label, main: true }] : []),
      ...single.map((run) => ({ ...lineOf(run, series, width, axis), name: `${series.label}, seed ${run.seed}${isWhole(run) ? "" : `, ${run.state}`}`, main: false })),
    ];
  }

  function tracesOf(series, controls, theme) {
    const stroke = theme.series[series.colour];
    return linesOf(series, controls).flatMap((line) => {
      const few = line.x.length === 1;
      const trace = {
        type: "scatter", mode: few ? "markers" : "lines", x: line.x, y: line.y, name: plain(line.name), connectgaps: true,
        line: { color: stroke, width: line.main ? 2.4 : 1.3, dash: DASHES[series.dash] }, opacity: line.main ? 1 : 0.8, marker: { color: stroke },
      };
      const banded = line.main && line.seeds > 1 && controls.band;
      return banded ? [bandTrace(line.x, line.low, line.high, stroke), trace] : [trace];
    });
  }

  /* The value of a series at a place on the axis: at the last point that is not beyond it. */
  function valueAt(series, controls, x) {
    const line = linesOf(series, controls)[0];
    if (!line || !line.x.length) return null;
    if (x === null) return line.y.at(-1);
    let found = null;
    line.x.forEach((at, index) => { if (at <= x * (1 + 1e-9)) found = line.y[index]; });
    return found;
  }

  function chips(list, isOn, toggle, content) {
    return list.map((item) => {
      const button = el("button", { type: "button", "aria-pressed": String(isOn(item)), on: { click: () => { toggle(item); changed(); } } }, ...content(item));
      return el("li", {}, button);
    });
  }

  const flip = (set) => (item) => { if (!set.delete(item)) set.add(item); };

  /* The list of methods as buttons that show and hide them, with their values behind them. */
  function methodChips(getSeries, valueOf) {
    const list = el("ul", { class: "chips", "aria-label": "Methods: shown or hidden" });
    let values = [];
    let built = "";
    function rebuild() {
      const series = getSeries();
      const names = [...new Set(series.map((one) => one.method))];
      const key = JSON.stringify(series.map((one) => one.label));
      if (key === built) {  // the buttons stay, and with them the keyboard's focus
        series.forEach((one, index) => { values[index][0] = one; values[index][2]().setAttribute("aria-pressed", String(!hidden.methods.has(one.method))); });
        if (list.querySelector(".more")) list.querySelector(".more").textContent = names.every((name) => hidden.methods.has(name)) ? "Show all" : "Hide all";
        update(null);
        return;
      }
      built = key;
      values = [];
      const items = chips(series, (one) => !hidden.methods.has(one.method), (one) => flip(hidden.methods)(one.method), (one) => {
        const value = el("b", {});
        values.push([one, value, () => value.closest("button") ?? list.children[series.indexOf(one)].firstChild]);
        return [swatch(one), el("span", {}, one.label), ...(valueOf ? [value] : [])];
      });
      if (names.length > 2) {
        const none = () => names.every((name) => hidden.methods.has(name));
        items.push(el("li", {}, el("button", { type: "button", class: "more", on: { click: () => {
          const show = none();
          hidden.methods.clear();
          if (!show) names.forEach((name) => hidden.methods.add(name));
          changed();
        } } }, none() ? "Show all" : "Hide all")));
      }
      list.replaceChildren(...items);
      update(null);
    }
    const update = (x) => { if (valueOf) for (const [one, value] of values) value.textContent = hidden.methods.has(one.method) ? "" : valueOf(one, x); };
    return { list, rebuild, update };
  }

  function seedChips() {
    const list = el("ul", { class: "chips seeds", "aria-label": "Seeds: shown or hidden" });
    let built = "";
    const rebuild = () => {
      const seeds = [...new Set(fedkeelPage.document.runs.map((run) => run.seed))].sort((a, b) => a - b);
      list.hidden = seeds.length < 2;
      if (String(seeds) === built) {
        seeds.forEach((seed, index) => list.children[index].firstChild.setAttribute("aria-pressed", String(!hidden.seeds.has(seed))));
        return;
      }
      built = String(seeds);
      list.replaceChildren(...chips(seeds, (seed) => !hidden.seeds.has(seed), flip(hidden.seeds), (seed) => [`seed ${seed}`]));
    };
    return { list, rebuild };
  }

  function segments(name, label, choices, chosen, onChoice) {
    const options = Object.entries(choices).map(([value, text]) => {
      const input = el("input", { type: "radio", name, value, checked: value === chosen, on: { change: () => onChoice(value) } });
      return el("label", {}, input, text);
    });
    return el("fieldset", { class: "control" }, el("legend", { class: label.startsWith("·") ? "hidden" : null }, label), el("div", { class: "segments" }, ...options));
  }

  function checkbox(label, checked, onChange) {
    const input = el("input", { type: "checkbox", checked, on: { change: () => onChange(input.checked) } });
    return el("div", { class: "control" }, el("label", {}, input, label));
  }

  const labelOf = (column) => fedkeelPage.document.columns[column] ?? { label: column, percent: false, log: false, about: "" };
  const shownTotal = (axis, value) => ({ rounds: () => `round ${number(Math.round(value))}`, bytes: () => bytes(value), gradients: () => `${number(Math.round(value))} gradient steps`, seconds: () => seconds(value) })[axis]();

  function curvesView(first) {
    let block = first;
    if (!settings.has(block.id)) settings.set(block.id, { metric: block.metrics[0], axis: "rounds", width: 1, logX: false, logY: false, each: false, band: methodsOf(fedkeelPage.document).length <= MANY });
    const controls = settings.get(block.id);
    const set = (key) => (value) => { controls[key] = value; refresh(); };
    const series = () => seriesOf(fedkeelPage.document, controls.metric, true);
    const shown = () => series().filter((one) => !hidden.methods.has(one.method));
    const label = () => labelOf(controls.metric);
    const legend = methodChips(series, (one, x) => { const value = valueAt(one, controls, x); return value === null ? "" : number(value, label().percent); });
    const seeds = seedChips();
    const at = el("p", { class: "at", "aria-live": "off" });
    const say = (x) => { at.textContent = x === null ? "Values at the end; point at the curves for those of any round." : `Values at ${shownTotal(controls.axis, x)}`; };

    const metric = el("select", { "aria-label": "Metric", on: { change: () => { controls.metric = metric.value; refresh(); } } });
    const fillMetrics = () => {
      metric.replaceChildren(...block.metrics.map((name) => el("option", { value: name, selected: name === controls.metric }, labelOf(name).label)));
      metric.parentElement.hidden = block.metrics.length < 2;
    };
    const slider = el("input", { type: "range", min: "1", max: "50", value: String(controls.width), "aria-label": "Smoothing: mean of so many evaluations", on: { input: () => { controls.width = Number(slider.value); width.textContent = controls.width; refresh(); } } });
    const width = el("output", {}, String(controls.width));
    const axes = () => Object.fromEntries(Object.entries(AXES).filter(([axis]) => axis === "rounds" || fedkeelPage.document.runs.some((run) => run.axes[axis]?.values.length)));
    const bySeed = [  // of no use with one seed
      segments(`${block.id}-seeds`, "· Seeds", { mean: "Mean", each: "Every seed" }, controls.each ? "each" : "mean", (value) => set("each")(value === "each")),
      checkbox("band", controls.band, set("band")),
    ];
    const bar = el("div", { class: "controls" },
      el("div", { class: "control" }, metric),
      segments(`${block.id}-axis`, "against", axes(), controls.axis, set("axis")),
      el("div", { class: "control" }, el("span", {}, "Smoothing"), slider, width),
      checkbox("log x", controls.logX, set("logX")),
      checkbox("log y", controls.logY, set("logY")), ...bySeed);

    const make = (theme) => {
      const x = { label: AXIS_LABELS[controls.axis], log: controls.logX, bytes: controls.axis === "bytes" };
      const y = { label: label().label, log: controls.logY, percent: label().percent };
      const layout = layoutOf(theme, x, y, { hoverdistance: 60 });
      if (block.target !== undefined && controls.metric === block.metrics[0]) {
        layout.shapes = [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: block.target, y1: block.target, line: { color: theme.quiet, width: 1.2, dash: "dot" } }];
        const y0 = controls.logY ? Math.log10(block.target) : block.target;
        layout.annotations = [{ xref: "paper", x: 0, y: y0, xanchor: "left", yanchor: "bottom", showarrow: false, text: `target ${number(block.target, label().percent)}`, font: { size: 11, color: theme.quiet } }];
      }
      if (controls.axis === "rounds") layout.xaxis.hoverformat = ",d";
      return { data: shown().flatMap((one) => tracesOf(one, controls, theme)), layout, x, y };
    };
    const rows = (whole) => {
      const head = [fedkeelPage.document.subject, "seed", "round", "bytes", "gradients", "seconds", label().label];
      const every = whole ? 1 : Math.max(1, Math.ceil(Math.max(...fedkeelPage.document.runs.map((run) => run.columns[controls.metric]?.values.length ?? 0)) / 12));
      return [head, ...shown().flatMap((one) => one.runs.flatMap((run) => {
        const { rounds, values } = pointsOf(run.columns[one.column], controls.width);
        return rounds.map((round, index) => [one.label, run.seed, round, ...["bytes", "gradients", "seconds"].map((axis) => totalAt(run, axis, round)), values[index]])
          .filter((_, index) => index % every === 0 || index === rounds.length - 1);
      }))];
    };
    const describe = () => `${label().label} against ${AXIS_LABELS[controls.axis]}. ` + shown().map((one) => `${one.label} ends at ${number(valueAt(one, controls, null), label().percent)}`).join("; ");
    const card = chartCard({ title: block.title, size: "tall", make, rows, describe, before: [bar, legend.list, seeds.list, at], noteOf: () => [block.note, label().about].filter(Boolean).join(" ") });
    card.holder.addEventListener("fedkeel:drawn", () => {
      card.holder.on("plotly_hover", (event) => { const x = event.points[0].x; legend.update(x); say(x); });
      card.holder.on("plotly_unhover", () => { legend.update(null); say(null); });
    });
    function refresh() {
      const one = new Set(fedkeelPage.document.runs.map((run) => run.seed)).size < 2;
      bySeed.forEach((control) => { control.hidden = one; });
      legend.rebuild(); seeds.rebuild(); say(null); card.refresh();
    }
    fillMetrics();
    refresh();
    listeners.add(refresh);
    return { element: card.element, refresh: (next) => { block = next; fillMetrics(); refresh(); } };
  }

  function smallView(block, column, controls) {
    const label = labelOf(column);
    const series = () => seriesOf(fedkeelPage.document, column, false).filter((one) => one.runs.length);
    const shown = () => series().filter((one) => !hidden.methods.has(one.method));
    const make = (theme) => ({ data: shown().flatMap((one) => tracesOf(one, controls, theme)), layout: layoutOf(theme, { label: "round" }, { label: "", log: label.log, percent: label.percent }) });
    const rows = (whole) => [[fedkeelPage.document.subject, "seed", "round", label.label], ...shown().flatMap((one) => one.runs.flatMap((run) => {
      const { rounds, values } = pointsOf(run.columns[column], 1);
      const every = whole ? 1 : Math.max(1, Math.ceil(rounds.length / 12));
      return rounds.map((round, index) => [one.method, run.seed, round, values[index]]).filter((_, index) => index % every === 0 || index === rounds.length - 1);
    }))];
    const describe = () => `${label.label} by round. ` + shown().map((one) => `${one.label} ends at ${number(valueAt(one, controls, null), label.percent)}`).join("; ");
    const title = column.startsWith("layers/") ? label.label : label.label[0].toUpperCase() + label.label.slice(1);
    const card = chartCard({ title, size: "small", make, rows, describe, note: label.about });
    card.refresh();
    listeners.add(card.refresh);
    return card;
  }

  function smallCurvesView(first) {
    const controls = { width: 1, axis: "rounds", each: false, band: methodsOf(fedkeelPage.document).length <= MANY };
    const all = () => first.columns.flatMap((column) => seriesOf(fedkeelPage.document, column, false));
    const legend = methodChips(() => [...new Map(all().map((one) => [one.method, one])).values()], null);
    const cards = first.columns.map((column) => smallView(first, column, controls));
    listeners.add(legend.rebuild);
    legend.rebuild();
    const element = el("div", {}, legend.list, el("div", { class: "row" }, ...cards.map((card) => card.element)), first.note ? el("p", { class: "note" }, first.note) : null);
    return { element, refresh: () => { legend.rebuild(); cards.forEach((card) => card.refresh()); } };
  }

  /* All runs and columns as one table: a line per run and round. */
  function allRows(page) {
    const names = [...new Set(page.runs.flatMap((run) => Object.keys(run.columns)))];
    const head = [page.subject, "seed", "round", "bytes", "gradients", "seconds", ...names];
    const lines = page.runs.flatMap((run) => {
      const columns = names.map((name) => { const column = run.columns[name]; return column ? new Map(roundsOf(column).map((round, index) => [round, column.values[index]])) : new Map(); });
      const rounds = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
      return rounds.map((round) => [run.method, run.seed, round, ...["bytes", "gradients", "seconds"].map((axis) => totalAt(run, axis, round)), ...columns.map((column) => column.get(round))]);
    });
    return [head, ...lines];
  }

  Object.assign(fedkeelPage, { curvesView, smallCurvesView, allRows, resetCurves, refreshCurves: changed });
})();
