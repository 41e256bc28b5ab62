/* The live page: hears of changes from the server, shows them, and sends what the buttons ask for. */
"use strict";
window.addEventListener("DOMContentLoaded", () => {
  const page = fedkeelPage;
  const { el } = page;
  const REDRAW = 400;  // milliseconds between two drawings, or more where one takes long
  const PATIENCE = 4000;  // for which a drawing waits while somebody points at a chart
  let source = null;
  let group = new URLSearchParams(window.location.search).get("group");
  let waiting = null;  // the document of changes that are not drawn yet
  let since = 0;
  let timer = null;
  let cost = 0;  // of the last drawing
  let known = new Set();

  const status = el("p", { class: "hidden", role: "status" });
  const link = el("p", { class: "link", role: "alert", hidden: true });
  window.document.body.append(status);
  window.document.getElementById("contents").before(link);

  /* Say new alerts to screen readers. */
  function announce(made) {
    const table = made.sections.find((section) => section.id === "alerts")?.blocks[0];
    if (!table) return;
    const lines = table.rows.map((row) => row.join(" ")).filter((line) => !known.has(line));
    if (known.size && lines.length) status.textContent = lines[0];
    lines.forEach((line) => known.add(line));
    if (known.size > 1000) known = new Set(table.rows.map((row) => row.join(" ")));
  }

  function draw() {
    timer = null;
    if (waiting === null || window.document.hidden) return;
    const late = performance.now() - since > PATIENCE;
    if (!late && window.document.querySelector(".plot:hover")) { later(); return; }
    const made = waiting, started = performance.now();
    waiting = null;
    page.update(made);
    cost = performance.now() - started;
    announce(made);
  }

  function show(made, at_once) {
    if (waiting === null) since = performance.now();
    waiting = made;
    if (at_once && timer !== null) { clearTimeout(timer); timer = null; }
    if (at_once) draw();
    else if (timer === null) later();
  }

  /* So that drawing takes a fifth of the time at most, and the page answers. */
  const later = () => { timer = setTimeout(draw, Math.max(REDRAW, 4 * cost)); };

  page.drawsOnlySeen = true;  // charts out of view wait until they are in view
  window.addEventListener("scroll", () => { if (page.document) show(page.document, false); }, { passive: true });

  function connect() {
    if (source) source.close();
    source = new EventSource(`events${group === null ? "" : `?group=${encodeURIComponent(group)}`}`);
    source.addEventListener("document", (event) => { connected(); page.document = JSON.parse(event.data); show(page.document, true); });
    source.addEventListener("changes", (event) => {
      connected();
      const { document: head, runs } = JSON.parse(event.data);
      for (const run of runs) page.append(run.id, run);
      page.document = { ...head, runs: page.document.runs };
      show(page.document, false);
    });
    source.addEventListener("end", () => { source.close(); lost("fedkeel watch has ended. The runs go on."); });
    source.addEventListener("error", () => { if (source.readyState !== EventSource.OPEN) lost("No connection to fedkeel watch; trying again. The runs go on."); });
  }

  const connected = () => { link.hidden = true; };
  const lost = (text) => { link.textContent = text; link.hidden = false; };

  page.groupsView = (first) => {
    const list = el("ul", { class: "groups", "aria-label": "What is shown" });
    let built = "";
    function refresh(block) {
      const key = JSON.stringify(block);
      if (key === built) return;
      built = key;
      const focused = list.contains(window.document.activeElement) ? window.document.activeElement.dataset.id : null;
      list.replaceChildren(...block.groups.map((one) => el("li", {}, el("button", {
        type: "button", "data-id": one.id, "aria-pressed": String(one.id === block.chosen), on: { click: () => choose(one.id) },
      }, one.label, el("span", {}, one.note)))));
      if (focused !== null) list.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus();
    }
    refresh(first);
    return { element: list, refresh };
  };

  function choose(id) {
    group = id;
    window.history.replaceState(null, "", `?group=${encodeURIComponent(id)}`);
    connect();
  }

  async function request(button, run, what) {
    button.disabled = true;
    try {
      const reply = await fetch("control", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ run: run.id, request: what }) });
      status.textContent = `${run.name}: ${await reply.text()}`;
      if (!reply.ok) lost(status.textContent);
    } catch {
      lost("No connection to fedkeel watch: nothing was asked for.");
    }
    button.disabled = false;
  }

  const LABELS = { pause: "Pause", continue: "Continue", checkpoint: "Checkpoint", stop: "Stop" };

  /* A line of the list; its parts stay, so that the keyboard's focus does. */
  function runLine() {
    const name = el("b", {}), place = el("span", {});
    const bar = el("progress", { max: "1", value: "0" });
    const far = el("div", { class: "how" }), how = el("div", { class: "how" }), state = el("span", { class: "state" });
    const asks = el("div", { class: "asks" });
    const element = el("li", {}, el("div", { class: "who" }, name, place), el("div", {}, bar, far), how, el("div", {}, state, asks));
    let offered = "";
    function refresh(run) {
      name.textContent = run.name;
      place.textContent = run.place;
      bar.max = run.planned ?? Math.max(1, run.done);
      bar.value = run.done;
      bar.setAttribute("aria-label", `${run.name}: ${run.done} of ${run.planned ?? "?"} rounds`);
      far.textContent = `round ${page.number(run.done)}${run.planned ? ` of ${page.number(run.planned)}` : ""}${run.left ? `, ${run.left}` : ""}`;
      how.replaceChildren(el("b", {}, run.score || "–"), el("br"), [run.clients, run.pace].filter(Boolean).join(" · "));
      state.className = `state ${run.tone}`.trim();
      state.textContent = run.asked ? `asked to ${run.asked}` : run.state;
      const key = run.requests.join(" ");
      if (key === offered) return;
      offered = key;
      asks.replaceChildren(...run.requests.map((what) => {
        const button = el("button", { type: "button", "aria-label": `${LABELS[what]} ${run.name}`, on: { click: () => request(button, run, what) } }, LABELS[what]);
        return button;
      }));
    }
    return { element, refresh };
  }

  page.runListView = (first) => {
    const lines = new Map();
    const list = el("ul", { class: "runs" });
    const note = el("p", { class: "note" });
    const element = el("div", { class: "card" }, el("div", { class: "cap" }, el("h3", {}, first.title)), list, note);
    function refresh(block) {
      const wanted = block.runs.map((run) => {
        if (!lines.has(run.id)) lines.set(run.id, runLine());
        const line = lines.get(run.id);
        line.refresh(run);
        return line.element;
      });
      if (wanted.length !== list.children.length || wanted.some((one, index) => one !== list.children[index])) list.replaceChildren(...wanted);
      note.replaceChildren(...page.rich(block.note));
    }
    refresh(first);
    return { element, refresh };
  };

  window.document.addEventListener("visibilitychange", () => { if (!window.document.hidden && waiting !== null) draw(); });
  window.addEventListener("pagehide", () => source?.close());
  connect();
});
