"""KV blocks, recurrent states, and copies of them."""
