// Saves a picture as PNG: asks for its SVG on a click, draws it on a canvas. As an image, SVG cannot run anything.
function save(svg, name) {
  return new Promise((done) => {
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      // Twice the size for sharp text, but never a canvas larger than browsers allow.
      const scale = Math.min(2, 16000 / image.width, 16000 / image.height);
      canvas.width = Math.round(image.width * scale);
      canvas.height = Math.round(image.height * scale);
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(blob);
        link.download = name;
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 10000);
        done();
      }, "image/png");
    };
    image.onerror = done;
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg);
  });
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  let button = parentElement.querySelector("button");
  if (!button) {
    button = document.createElement("button");
    button.type = "button";
    button.className = "save";
    parentElement.append(button);
  }
  button.textContent = data.label;
  button.onclick = () => { button.dataset.wanted = "yes"; setTriggerValue("asked", true); };
  if (data.svg && button.dataset.wanted) {
    delete button.dataset.wanted;
    save(data.svg, data.name);
  }
}
