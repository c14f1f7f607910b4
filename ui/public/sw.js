// The page's service worker: shows push messages, and takes a person who taps one to the question. It keeps nothing, answers
// no request, and shows only what the server encrypted for this browser.

self.addEventListener("push", (event) => {
  const { title, body, path } = event.data.json();
  // The tag is that of the page's own notifications: one at a time, and a newer one is seen again.
  const options = { body, tag: "byleave-waiting", renotify: true, dir: "ltr", icon: "/page/icon-192.png", data: path };
  event.waitUntil(self.registration.showNotification(title, options));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(show(event.notification.data));
});

async function show(path) {
  const target = new URL(path, self.location.origin);
  if (target.origin !== self.location.origin) return;
  const windows = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const page = windows.find((one) => new URL(one.url).pathname === "/");
  if (!page) return void (await self.clients.openWindow(target.href));
  page.postMessage({ show: target.hash });
  await page.focus();
}
