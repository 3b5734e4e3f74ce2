"use strict";
// The page says everything without this; it saves a selection by hand and clicks, and opens what paper cannot open.
const openAll = () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
};
for (const button of document.querySelectorAll("button[data-copies]")) {
  const source = document.getElementById(button.dataset.copies);
  const status = document.getElementById(button.dataset.copies + "-status");
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      status.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(source);
      status.textContent = "Selected: press Ctrl+C.";
    }
  });
}
for (const button of document.querySelectorAll("button[data-opens]")) {
  button.hidden = false;
  button.addEventListener("click", openAll);
}
addEventListener("beforeprint", openAll);
