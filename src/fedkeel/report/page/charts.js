/* Charts: how plotly is called, charts with numbers of their own, and the label picture of a split. */
"use strict";
(() => {
  const { el, plain, number, colours, faded, look, fileName, caption, download, DASHES } = fedkeelPage;
  const drawn = new Set();  // every chart on the page, to draw anew in other colours
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

  function axisLayout(axis, theme) {
    const layout = {
      title: { text: plain(axis.label), font: { size: 12, color: theme.quiet }, standoff: 10 },
      type: axis.log ? "log" : axis.categories ? "category" : "linear",
      gridcolor: theme.rule, zerolinecolor: theme.rule, linecolor: theme.rule,
      tickfont: { size: 11.5, color: theme.quiet }, automargin: true, fixedrange: false,
    };
    if (axis.percent) Object.assign(layout, { tickformat: ".2~%", hoverformat: ".2%" });
    if (axis.bytes && !axis.log) Object.assign(layout, { tickformat: "~s", ticksuffix: "B", hoverformat: ".3s" });
    return layout;
  }

  function layoutOf(theme, x, y, more = {}) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: FONT, size: 12, color: theme.ink }, showlegend: false,
      margin: { l: 46, r: 14, t: 8, b: 40 }, hovermode: "x unified",
      hoverlabel: { bgcolor: theme.card, bordercolor: theme.rule, font: { family: FONT, size: 12, color: theme.ink }, namelength: 40 },
      xaxis: { ...axisLayout(x, theme), showgrid: false, showline: true, zeroline: false },
      yaxis: { ...axisLayout(y, theme), zeroline: !y.log },
      ...more,
    };
  }

  function ticked({ data, layout, x = {}, y = {} }) {
    const all = (key) => () => data.flatMap((trace) => trace[key] ?? []);
    return { data, layout: { ...layout, xaxis: withTicks(layout.xaxis, all("x"), x), yaxis: withTicks(layout.yaxis, all("y"), y) } };
  }

  /* Draw what `make(theme)` returns ({ data, layout, x, y: the axes }) into a holder, now and whenever the colours change. */
  function plot(holder, make) {
    const draw = (theme = colours(), onPaper = false) => {
      const { data, layout } = ticked(make(theme));
      if (onPaper) Object.assign(layout, { width: holder.clientWidth, height: holder.clientHeight });
      return Plotly.react(holder, data, layout, { displayModeBar: false, responsive: true, showTips: false });
    };
    drawn.add(draw);
    draw();
    return draw;
  }

  /* Round numbers on a logarithmic axis, written like all others. */
  function logTicks(values, axis) {
    const known = values.filter((value) => typeof value === "number" && value > 0);
    if (!known.length) return {};
    const low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const factors = last - first <= 2 ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil((last - first) / 7));
    const tickvals = [];
    for (let power = first; power <= last; power += every) for (const factor of factors) tickvals.push(Number(`${factor}e${power}`));
    if (tickvals.filter((value) => value >= low && value <= high).length < 2) return {};  // too narrow for round numbers
    return { tickvals, ticktext: tickvals.map((value) => (axis.bytes ? fedkeelPage.bytes(value) : axis.percent ? `${number(100 * value)}%` : number(value))) };
  }

  const withTicks = (layout, values, axis) => (layout.type === "log" ? { ...layout, ...logTicks(values(), axis) } : layout);

  const redraw = () => { for (const draw of drawn) draw(); };

  /* Before printing: in light colours, and as wide as on paper. */
  function redrawForPaper(onPaper) {
    document.documentElement.classList.toggle("paper", onPaper);
    for (const draw of drawn) draw(onPaper ? colours("light") : undefined, onPaper);
  }
  const forget = () => drawn.clear();

  /* Save a figure for a paper: light, with its legend, whatever the page looks like. */
  function saveFigure(make, title, format) {
    const { data, layout } = ticked(make(colours("light")));
    const figure = {
      data,
      layout: { ...layout, paper_bgcolor: "#ffffff", showlegend: data.length > 1, legend: { orientation: "h", y: -0.2 }, margin: { ...layout.margin, b: 60 } },
    };
    return Plotly.downloadImage(figure, { format, width: 760, height: 460, scale: format === "png" ? 3 : 1, filename: fileName(title) });
  }

  /* The card around a chart: caption with what can be saved, the drawing, its numbers as a table, a note. */
  function chartCard({ title, size, make, rows, describe, note, before = [], noteOf }) {
    const holder = el("div", { class: `plot ${size}`, role: "img" });
    const name = `${title}`;
    const body = el("div", {});
    const numbers = el("details", { class: "numbers", on: { toggle: () => numbers.open && fill() } },
      el("summary", {}, "The numbers as a table"), body);
    const fill = () => body.replaceChildren(fedkeelPage.htmlTable(asTable(rows()), `${name}: numbers`));
    const noted = el("p", { class: "note" }, ...fedkeelPage.rich(note || ""));
    const card = el("div", { class: "card" }, caption(name, {
      SVG: () => saveFigure(make, name, "svg"),
      PNG: () => saveFigure(make, name, "png"),
      CSV: () => download(`${fileName(`${fedkeelPage.document.title} ${name}`)}.csv`, fedkeelPage.toCsv(rows(true)), "text/csv"),
    }), ...before, holder, numbers, noted);
    noted.hidden = !note;
    let draw = null;
    let waits = false;
    function drawLater() {
      if (waits) return;
      waits = true;
      fedkeelPage.later(() => {
        waits = false;
        if (draw !== null) draw();
        else { draw = plot(holder, make); fedkeelPage.drew(holder); }
      });
    }
    function refresh() {
      holder.setAttribute("aria-label", describe());
      if (draw === null) drawLater();
      else if (isInView(holder)) draw();  // what is seen answers at once, the rest one after the other
      else if (!fedkeelPage.drawsOnlySeen) drawLater();
      if (numbers.open) fill();
      if (noteOf) { noted.replaceChildren(...fedkeelPage.rich(noteOf())); noted.hidden = !noted.textContent; }
    }
    return { element: card, refresh, holder };
  }

  function isInView(holder) {
    const { top, bottom } = holder.getBoundingClientRect();
    return bottom > -300 && top < window.innerHeight + 300;  // and a little around it
  }

  const asTable = ([headings, ...rows]) => ({
    headings, left: [0], wide: [], rows: rows.map((row) => row.map((cell) => (typeof cell === "number" ? number(cell) : cell ?? "–"))),
  });

  const lookOf = (series, index) => ({
    colour: (series.colour ?? index) % 10,
    dash: series.dash ?? Math.floor((series.colour ?? index) / 10) % DASHES.length,
  });

  function seriesTraces(series, index, theme) {
    const { colour, dash } = lookOf(series, index);
    const stroke = theme.series[colour];
    const name = plain(series.name);
    if (series.kind === "bars") {
      const bars = { type: "bar", name, x: series.x.map(category), y: series.y, marker: { color: faded(stroke, 0.85) } };
      if (series.low) bars.error_y = whiskers(series, theme);
      return [bars];
    }
    const traces = series.low ? [bandTrace(series.x, series.low, series.high, stroke)] : [];
    const few = series.x.length <= 24 || series.hollow || series.kind === "points";
    const marker = { size: 7, color: stroke, line: { width: 1.6, color: stroke } };
    if (series.hollow) marker.symbol = series.hollow.map((hollow) => (hollow ? "circle-open" : "circle"));
    traces.push({
      type: "scatter", name, x: series.x.map(category), y: series.y, connectgaps: false, marker,
      mode: series.kind === "points" ? "markers" : few ? "lines+markers" : "lines",
      line: { color: stroke, width: 2.2, dash: DASHES[dash] },
    });
    return traces;
  }

  /* From low to high around each bar; a bar without a value has none. */
  function whiskers(series, theme) {
    const away = (end) => series.y.map((y, i) => (y === null || end[i] === null ? 0 : Math.abs(end[i] - y)));
    const [array, arrayminus] = [away(series.high), away(series.low)];
    return { type: "data", symmetric: false, array, arrayminus, thickness: 1.2, width: 2, color: theme.ink };
  }

  const category = (value) => (typeof value === "string" ? plain(value) : value);

  function bandTrace(x, low, high, stroke) {
    const reversed = (list) => list.slice().reverse();
    return {
      type: "scatter", x: [...x, ...reversed(x)], y: [...high, ...reversed(low)], fill: "toself", mode: "lines",
      fillcolor: faded(stroke, 0.16), line: { width: 0 }, hoverinfo: "skip", showlegend: false,
    };
  }

  function chartView(first) {
    let block = first;
    const isText = () => block.series.some((series) => series.x.some((value) => typeof value === "string"));
    const make = (theme) => ({
      data: block.series.flatMap((series, index) => seriesTraces(series, index, theme)),
      layout: layoutOf(theme, { ...block.x, categories: isText() }, block.y, block.series.length > 1
        ? { showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11.5 } }, bargap: 0.15 }
        : { bargap: 0.15 }),
      y: block.y,
    });
    const rows = () => {
      const bands = block.series.some((series) => series.low);
      const head = ["series", block.x.label, block.y.label, ...(bands ? ["low", "high"] : [])];
      return [head, ...block.series.flatMap((series) => series.x.map((x, index) =>
        [series.name, x, series.y[index], ...(bands ? [series.low?.[index], series.high?.[index]] : [])]))];
    };
    const describe = () => `${block.title}: ${block.y.label} against ${block.x.label}. ` + block.series.map(ends).join("; ");
    const ends = (series) => {
      const known = series.y.filter((value) => value !== null);
      return `${series.name} from ${number(known[0], block.y.percent)} to ${number(known.at(-1), block.y.percent)}`;
    };
    const card = chartCard({ title: block.title, size: block.wide ? "tall" : "mid", make, rows, describe, note: block.note });
    card.refresh();
    return { element: card.element, refresh: (next) => { block = next; card.refresh(); } };
  }

  function labelsView(first) {
    let block = first;
    const cells = () => block.clients.flatMap((client, i) => block.classes.map((name, k) => [client, name, block.counts[i][k]])).filter((cell) => cell[2] > 0);
    const make = (theme) => {
      const found = cells();
      const most = Math.max(1, ...found.map((cell) => cell[2]));
      const cell = Math.max(5, Math.min(22, 900 / block.clients.length, 420 / block.classes.length));
      return {
        data: [{
          type: "scatter", mode: "markers", x: found.map((one) => one[0]), y: found.map((one) => plain(one[1])),
          marker: { size: found.map((one) => Math.max(2, cell * Math.sqrt(one[2] / most))), color: theme.series[0], opacity: 0.9, line: { width: 0 } },
          customdata: found.map((one) => one[2]), hovertemplate: "client %{x}, class %{y}: %{customdata} samples<extra></extra>",
        }],
        layout: layoutOf(theme, { label: "client" }, { label: "class" }, {
          hovermode: "closest",
          yaxis: { ...axisLayout({ label: "class", categories: true }, theme), categoryorder: "array", categoryarray: block.classes.map(plain).reverse(), dtick: Math.ceil(block.classes.length / 25) },
          xaxis: { ...axisLayout({ label: "client" }, theme), showgrid: false, zeroline: false, range: [block.clients[0] - 0.8, block.clients.at(-1) + 0.8] },
        }),
      };
    };
    const rows = () => [["client", ...block.classes], ...block.clients.map((client, i) => [client, ...block.counts[i]])];
    const describe = () => {
      const present = block.counts.map((row) => row.filter((count) => count > 0).length);
      return `${block.title}: samples of ${block.classes.length} classes at ${block.clients.length} clients; a client has ${Math.min(...present)} to ${Math.max(...present)} classes.`;
    };
    const card = chartCard({ title: block.title, size: "mid", make, rows, describe, note: block.note });
    card.refresh();
    return { element: card.element, refresh: (next) => { block = next; card.refresh(); } };
  }

  Object.assign(fedkeelPage, { layoutOf, bandTrace, chartCard, chartView, labelsView, redraw, redrawForPaper, forget });
})();
