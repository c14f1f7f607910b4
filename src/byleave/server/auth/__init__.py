"""Who is asking: tokens, sign-ins and the middleware that every request passes."""
