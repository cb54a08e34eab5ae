"use strict";
(function () {
  var words = document.getElementById("filter-text");
  var kind = document.getElementById("filter-kind");
  var count = document.getElementById("filter-count");
  if (!words || !kind || !count) { return; }
  var items = Array.prototype.slice.call(document.querySelectorAll(".example"));
  document.documentElement.classList.add("scripted");
  function apply() {
    var wanted = words.value.toLowerCase();
    var shown = 0;
    items.forEach(function (item) {
      var fits = (!kind.value || item.dataset.kind === kind.value) &&
        item.textContent.toLowerCase().indexOf(wanted) >= 0;
      item.hidden = !fits;
      shown += fits ? 1 : 0;
    });
    count.textContent = shown + " of " + items.length + " shown";
  }
  words.addEventListener("input", apply);
  kind.addEventListener("change", apply);
  apply();
}());
