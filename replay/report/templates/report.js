// Shows all decisions, only the moves, or only the fallbacks.
document.querySelectorAll(".filter button").forEach((button) => {
  button.addEventListener("click", () => {
    document.querySelectorAll(".filter button").forEach((other) => other.setAttribute("aria-pressed", other === button));
    const wanted = button.dataset.show;
    document.querySelectorAll(".decisions details").forEach((choice) => {
      choice.hidden = wanted !== "all" && !choice.classList.contains(wanted);
    });
  });
});
