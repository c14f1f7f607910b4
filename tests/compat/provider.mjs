// A real OpenID provider on 127.0.0.1, whose people sign in with any password. `node provider.mjs '{"port": …}'`; it
// prints a line when it listens. New keys at every start: a restart rotates them.

import { createServer } from "node:http";
import { exportJWK, generateKeyPair } from "jose";
import { Provider } from "oidc-provider";

const { port, clients, people = {} } = JSON.parse(process.argv[2]);
const { privateKey } = await generateKeyPair("RS256", { extractable: true });
const key = { ...(await exportJWK(privateKey)), alg: "RS256", use: "sig" };

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients,
  jwks: { keys: [key] },
  cookies: { keys: ["of the tests"] },
  claims: {
    openid: ["sub"],
    email: ["email", "email_verified"],
    profile: ["preferred_username", "groups"],
  },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...people[id] }) }),
  pkce: { required: () => true },
  features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true } },
  ttl: { Interaction: 600, Session: 600, Grant: 600, AccessToken: 600, IdToken: 600 },
});

createServer(provider.callback()).listen(port, "127.0.0.1", () => console.log("listening"));
