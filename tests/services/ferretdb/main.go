// Command ferretdb speaks MongoDB's protocol and keeps the databases in SQLite files: FerretDB, by its embeddable package.
// Its own command does not start if it is built from the Go module proxy, because the module lacks the file of its version.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	address := flag.String("listen", "127.0.0.1:27017", "address to listen on")
	folder := flag.String("data", ".", "folder of the databases")
	flag.Parse()
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: *address},
		Handler:   "sqlite",
		SQLiteURL: "file:" + *folder + "/",
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := server.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
