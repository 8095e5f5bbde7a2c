// Search runs in a worker, and a browser starts none for pages that lie on a disk. There, a frame does its work.
if (location.protocol === "file:") {
  // As between threads: each side gets a copy, and later.
  const deliver = (receiver, data) => setTimeout(() => receiver.onmessage?.({ data: structuredClone(data) }));

  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html><title>search</title>";
      this.window = new Promise((started) => {
        this.frame.onload = () => {
          const inner = this.frame.contentWindow;
          inner.postMessage = (data) => deliver(this, data);
          const script = inner.document.createElement("script");
          script.src = address;
          script.onload = () => started(inner);
          inner.document.body.append(script);
        };
      });
      document.body.append(this.frame);
    }

    postMessage(data) {
      this.window.then((inner) => deliver(inner, data));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
