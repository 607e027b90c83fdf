# Faces of the scripts; a fresh machine without make uses the scripts themselves.
.PHONY: setup demo test check centre centre-demo
setup: ; @./scripts/setup
demo:  ; @./scripts/demo
centre: ; @./scripts/centre up
centre-demo: ; @./scripts/centre demo
test:  ; @./scripts/test
check: setup ; @./scripts/check
