/* Tables, and the same as CSV, LaTeX and Markdown; facts, code and texts. */
"use strict";
(() => {
  const { el, caption, download, fileName } = fedkeelPage;

  /* tables that scripts make have none */
  const isBold = (table, line, column) => Boolean(table.bold?.some(([l, c]) => l === line && c === column));
  const quoted = (cell) => (/[",\n\r]/.test(cell) ? `"${cell.replace(/"/g, '""')}"` : cell);
  const toCsv = (rows) => rows.map((row) => row.map((cell) => quoted(String(cell ?? ""))).join(",")).join("\n") + "\n";

  const inMarkdown = (cell) => String(cell).replace(/\\/g, "\\\\").replace(/\|/g, "\\|").replace(/\s+/g, " ").replace(/[<>]/g, (c) => ({ "<": "&lt;", ">": "&gt;" })[c]);
  function toMarkdown(table) {
    const line = (cells) => `| ${cells.map(inMarkdown).join(" | ")} |`;
    const rule = table.headings.map((_, index) => (table.left.includes(index) ? ":---" : "---:"));
    return [line(table.headings), `| ${rule.join(" | ")} |`, ...table.rows.map(line)].join("\n") + "\n";
  }

  const TEX = { "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "&": "\\&", "%": "\\%", $: "\\$", "#": "\\#", _: "\\_", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}", ">": "\\textgreater{}", "±": "$\\pm$", "−": "$-$", "—": "---", "–": "--", "×": "$\\times$", "≤": "$\\leq$", "≥": "$\\geq$", "β": "$\\beta$", "η": "$\\eta$", "λ": "$\\lambda$", "μ": "$\\mu$", "α": "$\\alpha$", "γ": "$\\gamma$", "ρ": "$\\rho$", "‖": "$\\|$", "²": "$^2$", "…": "\\ldots{}", "∩": "$\\cap$" };
  const inTex = (cell) => Array.from(String(cell), (sign) => TEX[sign] ?? sign).join("");
  function toLatex(table) {
    const columns = table.headings.map((_, index) => (table.left.includes(index) ? "l" : "r")).join("");
    const row = (cells, line) => `${cells.map((cell, column) => (isBold(table, line, column) ? `\\textbf{${inTex(cell)}}` : inTex(cell))).join(" & ")} \\\\`;
    const body = table.rows.map(row);
    return [`\\begin{tabular}{${columns}}`, "\\toprule", row(table.headings), "\\midrule", ...body, "\\bottomrule", "\\end{tabular}", ""].join("\n");
  }

  /* An HTML table of texts; the first cell of a line is its heading. */
  function htmlTable(table, label) {
    const kind = (index) => [table.left.includes(index) ? "l" : "", table.wide.includes(index) ? "w" : ""].join(" ").trim() || null;
    const head = table.headings.map((text, index) => el("th", { scope: "col", class: kind(index) }, el("span", {}, text)));
    const lines = table.rows.map((cells, line) => {
      const tone = table.tones ? table.tones[line] : "";
      const made = cells.map((text, index) => index === 0
        ? el("th", { scope: "row", class: kind(index) }, text)
        : el("td", { class: [kind(index), index === 1 ? tone : "", isBold(table, line, index) ? "best" : ""].filter(Boolean).join(" ") || null }, text));
      return el("tr", {}, ...made);
    });
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      el("table", {}, el("caption", { class: "hidden" }, label), el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...lines)));
  }

  function tableView(table) {
    let shown = table;
    const name = () => fileName(`${fedkeelPage.document.title} ${shown.title}`);
    const holder = el("div", {});
    const view = el("div", { class: "card" }, caption(table.title, {
      CSV: () => download(`${name()}.csv`, toCsv([shown.headings, ...shown.rows]), "text/csv"),
      LaTeX: () => download(`${name()}.tex`, toLatex(shown)),
      Markdown: () => download(`${name()}.md`, toMarkdown(shown), "text/markdown"),
    }), holder);
    let left = 0;  // heard of rather than read, which would lay the page out anew
    holder.addEventListener("scroll", (event) => { left = event.target.scrollLeft; }, true);
    function refresh(next) {
      const focused = holder.contains(window.document.activeElement);
      shown = next;
      holder.replaceChildren(htmlTable(next, next.title), ...(next.note ? [el("p", { class: "note" }, ...rich(next.note))] : []));
      if (left) holder.firstChild.scrollLeft = left;
      if (focused) holder.firstChild.focus({ preventScroll: true });
    }
    refresh(table);
    return { element: view, refresh };
  }

  function refreshing(make) {
    return (block) => {
      const holder = el("div", {});
      const refresh = (next) => holder.replaceChildren(make(next));
      refresh(block);
      return { element: holder, refresh };
    };
  }

  const factsView = refreshing((block) => {
    const list = el("dl", { class: "facts" });
    for (const [name, value] of block.rows) list.append(el("dt", {}, name), el("dd", {}, value));
    return el("div", { class: "card" }, list);
  });

  const codeView = refreshing((block) => {
    const code = el("pre", { class: block.folded ? null : "wrap", tabindex: "0" }, block.text);
    if (block.folded) return el("div", { class: "card" }, el("details", {}, el("summary", {}, block.title), code));
    const copied = el("button", { type: "button", on: { click: () => copy(copied, block.text) } }, "Copy");
    return el("div", { class: "card" }, el("div", { class: "cap" }, el("h3", {}, block.title), el("div", { class: "save" }, copied)), code);
  });

  async function copy(button, text) {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  /* A text with `code` in it. */
  const rich = (text) => text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));

  const textView = refreshing((block) => {
    const parts = block.paragraphs.map((text) => el(block.listed ? "li" : "p", { class: block.listed ? null : block.tone || null }, ...rich(text)));
    return el("div", { class: "card" }, block.listed ? el("ul", { class: "text" }, ...parts) : el("div", {}, ...parts));
  });

  Object.assign(fedkeelPage, { toCsv, toMarkdown, toLatex, htmlTable, rich, tableView, factsView, codeView, textView });
})();
