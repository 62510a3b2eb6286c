"use strict";
(() => {
  const root = document.documentElement, button = document.getElementById("theme"), tip = document.getElementById("tip");
  const themes = ["auto", "light", "dark"];
  let theme = 0;
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = (theme + 1) % themes.length;
    button.textContent = "theme: " + themes[theme];
    if (theme) root.dataset.theme = themes[theme]; else delete root.dataset.theme;
  });
  for (const svg of document.querySelectorAll("svg[data-hover]")) {
    const rows = JSON.parse(svg.dataset.hover);
    if (!rows.length) continue;
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("class", "cursor");
    const hide = () => { tip.hidden = true; line.remove(); };
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      const row = rows.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
      line.setAttribute("d", `M${row[0]} ${svg.dataset.top}V${svg.dataset.bottom}`);
      svg.append(line);
      tip.textContent = [row[1], ...row[2].map(([name, value]) => `${name}: ${value}`)].join("\n");
      tip.hidden = false;
      const left = event.pageX + 14 + tip.offsetWidth > root.clientWidth + scrollX ? event.pageX - 14 - tip.offsetWidth : event.pageX + 14;
      tip.style.left = Math.max(4, left) + "px";
      tip.style.top = event.pageY + 14 + "px";
    });
  }
})();
