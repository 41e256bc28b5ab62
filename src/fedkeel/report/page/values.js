/* What the other scripts share: elements, numbers as text, colours, files. `fedkeelPage` is the one global name. */
"use strict";
window.fedkeelPage = (() => {
  const COLOURS = 10;
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
  const PATTERNS = ["", "7 4", "2 3", "8 3 2 3", "13 4"];

  /* An element with attributes, listeners (`on`) and children; texts stay texts. */
  function el(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "on") for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
      else if (value === true) made.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  function svg(name, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  /* A text for plotly, which reads a little HTML in names and titles. */
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function number(value, percent = false) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (percent) return `${(100 * value).toFixed(1).replace("-", "−")} %`;
    if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-GB").replace("-", "−");
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("-", "−").replace("e-", "e−");
    return String(Number(value.toPrecision(4))).replace("-", "−");
  }

  function bytes(value) {
    let power = 0;
    for (let rest = Math.abs(value); rest >= 1000 && power < 4; rest /= 1000) power += 1;
    return `${Number((value / 1000 ** power).toPrecision(3))} ${["B", "kB", "MB", "GB", "TB"][power]}`;
  }

  function seconds(value) {
    if (value < 120) return `${Number(value.toPrecision(3))} s`;
    return value < 7200 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(1)} h`;
  }

  /* A style sheet's colour as the browser computes it, in the present theme or in a given one. */
  function colours(theme) {
    const probe = el("span", { hidden: true });
    if (theme) probe.style.colorScheme = theme;
    document.body.append(probe);
    const read = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    const found = { series: Array.from({ length: COLOURS }, (_, index) => read(`c${index}`)) };
    for (const name of ["ink", "quiet", "rule", "card", "accent"]) found[name] = read(name);
    probe.remove();
    return found;
  }

  const faded = (colour, alpha) => colour.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);

  /* The look of the index-th of many: colours first, then dashes. */
  const look = (index, shift = 0) => ({
    colour: index % COLOURS,
    dash: (Math.floor(index / COLOURS) + shift) % DASHES.length,
  });

  function swatch({ colour, dash }) {
    const holder = svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" });
    const line = svg("path", { d: "M1 5H25", fill: "none", "stroke-width": "2.6", "stroke-dasharray": PATTERNS[dash] });
    line.style.stroke = `var(--c${colour})`;
    holder.append(line);
    return holder;
  }

  const fileName = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "fedkeel";

  function download(name, text, type = "text/plain") {
    const address = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
    const link = el("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  /* A row of small buttons that save something: { "CSV": () => …, … }. */
  function saveButtons(what, actions) {
    const buttons = Object.entries(actions).map(([label, call]) =>
      el("button", { type: "button", "aria-label": `${what}: save as ${label}`, on: { click: call } }, label));
    return el("div", { class: "save" }, ...buttons);
  }

  function caption(title, actions) {
    return el("div", { class: "cap" }, el("h3", {}, title), saveButtons(title, actions));
  }

  return { el, svg, plain, number, bytes, seconds, colours, faded, look, swatch, fileName, download, caption, DASHES };
})();
