// The keys of all pages, listed in the dialog that "?" opens. None works while a field is edited.
(() => {
  const rows = () =>
    [...document.querySelectorAll("main :is(.mr-item, .mr-expansion, article)")]
      .filter((row) => row.checkVisibility() && firstStop(row));
  const firstStop = (row) => row.querySelector("a[href], [role=button], button");
  const move = (step) => {
    const all = rows();
    const at = all.findLastIndex((row) => row.contains(document.activeElement));
    const next = at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step;
    if (all[next]) firstStop(all[next]).focus();
  };
  const actions = {
    "/": () => document.querySelector("main [role=search] input:not([type=hidden])")?.focus(),
    j: () => move(1),
    k: () => move(-1),
    "?": () => document.querySelector("dialog.mr-keys")?.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const isModified = event.ctrlKey || event.metaKey || event.altKey || event.isComposing;
    const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
    const isAsked = document.querySelector("dialog[open], .q-dialog, .q-menu");
    if (isModified || isTyping || isAsked || !Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  });
})();
