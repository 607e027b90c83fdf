# Faces of the scripts; a fresh machine without make uses the scripts themselves.
.PHONY: setup demo test check
setup: ; @./scripts/setup
demo:  ; @./scripts/demo
test:  ; @./scripts/test
check: setup ; @./scripts/check
