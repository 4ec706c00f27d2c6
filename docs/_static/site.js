// What scrolls can be reached by the keyboard, and each of the theme's side bars has a name.
for (const part of document.querySelectorAll("pre, div.math, .output.text_html"))
  if (part.tagName === "PRE" || part.scrollWidth > part.clientWidth) part.tabIndex = 0;
document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Pages");
document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");
