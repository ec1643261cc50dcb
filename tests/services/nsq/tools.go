//go:build tools

// Package nsq names the programs that the tests build, so that go.mod and go.sum list all they need.
package nsq

import (
	_ "github.com/nsqio/nsq/apps/nsqd"
	_ "github.com/nsqio/nsq/apps/nsqlookupd"
)
