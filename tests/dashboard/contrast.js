// Returns the visible texts whose computed contrast is below WCAG AA: 4.5 for text, 3 for large
// text and icons. Disabled elements are exempt, and so is text on a canvas, which has no style.
() => {
  const parse = (color) => {
    const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, bottom) => {
    const mix = (name) => top[name] * top.a + bottom[name] * (1 - top.a);
    return { r: mix("r"), g: mix("g"), b: mix("b"), a: 1 };
  };
  const luminance = ({ r, g, b }) => {
    const linear = (value) => {
      const share = value / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const backgroundOf = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const color = parse(getComputedStyle(each).backgroundColor);
      layers.push(color);
      if (color.a === 1) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), parse("rgb(255, 255, 255)"));
  };
  const opacityOf = (element) => {
    let opacity = 1;
    for (let each = element; each; each = each.parentElement) opacity *= getComputedStyle(each).opacity;
    return opacity;
  };
  const ratio = (one, other) => {
    const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const hasText = (element) =>
    [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const problems = [];
  for (const element of document.querySelectorAll("body *")) {
    const isField = element.matches("input:not([type=hidden]), textarea");
    if (!(hasText(element) || isField) || element.closest("[disabled], .disabled, script, style")) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2 || !element.checkVisibility({ visibilityProperty: true })) continue;
    const style = getComputedStyle(element);
    const background = backgroundOf(element);
    const color = parse(style.color);
    color.a *= opacityOf(element);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const isIcon = element.classList.contains("q-icon");
    const found = ratio(over(color, background), background);
    if (found < (isLarge || isIcon ? 3 : 4.5)) {
      const text = (element.textContent || element.name).trim().slice(0, 40);
      problems.push(`${found.toFixed(2)}: ${element.tagName}.${element.className} "${text}"`);
    }
  }
  return problems;
}
