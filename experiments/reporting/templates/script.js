"use strict";
// Panels that stand below each other become tabs, or steps of a slider; without this script, and
// on paper, all of them are shown. Choices of one name follow each other through the page.
(() => {
  const boxes = [...document.querySelectorAll("[data-choice]")];
  const panelsOf = (box) => [...box.querySelectorAll(":scope > .panel")];
  const controls = new Map();

  const show = (box, index) => {
    panelsOf(box).forEach((panel, n) => { panel.hidden = n !== index; });
    controls.get(box).mark(index);
  };

  const choose = (box, index) => {
    const control = controls.get(box).element;
    const before = control.getBoundingClientRect().top;
    const title = panelsOf(box)[index].dataset.title;
    show(box, index);
    for (const other of boxes) {
      if (other === box || other.dataset.choice !== box.dataset.choice) continue;
      const same = panelsOf(other).findIndex((panel) => panel.dataset.title === title);
      if (same >= 0) show(other, same);
    }
    // what was chosen elsewhere may be longer or shorter: the control stays under the finger
    window.scrollBy(0, control.getBoundingClientRect().top - before);
  };

  const tabs = (box, number) => {
    const list = document.createElement("div");
    list.className = "tabs";
    list.setAttribute("role", "tablist");
    list.setAttribute("aria-label", box.dataset.label);
    const made = panelsOf(box).map((panel, n) => {
      const tab = document.createElement("button");
      tab.type = "button";
      tab.id = `tab-${number}-${n}`;
      tab.textContent = panel.dataset.title;
      tab.setAttribute("role", "tab");
      panel.id = panel.id || `panel-${number}-${n}`;
      tab.setAttribute("aria-controls", panel.id);
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", tab.id);
      tab.addEventListener("click", () => choose(box, n));
      list.append(tab);
      return tab;
    });
    list.addEventListener("keydown", (event) => {
      const now = made.indexOf(document.activeElement);
      const moves = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: made.length - 1 };
      if (now < 0 || !(event.key in moves)) return;
      event.preventDefault();
      const next = (moves[event.key] + made.length) % made.length;
      choose(box, next);
      made[next].focus();
    });
    const mark = (index) => made.forEach((tab, n) => {
      tab.setAttribute("aria-selected", String(n === index));
      tab.tabIndex = n === index ? 0 : -1;
    });
    return { element: list, mark };
  };

  const slider = (box, number) => {
    const row = document.createElement("div");
    row.className = "slider";
    const titles = panelsOf(box).map((panel) => panel.dataset.title);
    const label = document.createElement("label");
    const input = document.createElement("input");
    const output = document.createElement("output");
    Object.assign(input, { type: "range", min: 0, max: titles.length - 1, step: 1, value: 0 });
    input.id = `slider-${number}`;
    label.htmlFor = input.id;
    label.textContent = box.dataset.label;
    output.htmlFor = input.id;
    row.append(label, input, output);
    input.addEventListener("input", () => choose(box, Number(input.value)));
    const mark = (index) => {
      input.value = index;
      input.setAttribute("aria-valuetext", titles[index]);
      output.textContent = titles[index];
    };
    return { element: row, mark };
  };

  boxes.forEach((box, number) => {
    const control = ("slider" in box.dataset ? slider : tabs)(box, number);
    controls.set(box, control);
    box.prepend(control.element);
    show(box, 0);
  });
  document.documentElement.classList.add("js");
})();
