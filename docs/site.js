// The theme wraps wide tables when the page has loaded; the keyboard must reach them to scroll.
addEventListener("load", () => {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) wide.tabIndex = 0;
});
