// What an application does with pgx, told line by line: the same with a proxy in between as without.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func state(err error) string {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	return fmt.Sprint(err)
}

func main() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, "")
	check(err)
	var number int
	var text string
	var data []byte
	check(conn.QueryRow(ctx, "SELECT $1::int * 7, $2::text, $3::bytea", 6, "Grüße", []byte{0, 255}).Scan(&number, &text, &data))
	fmt.Println("values", number, text, data)
	_, err = conn.Exec(ctx, "DROP TABLE IF EXISTS of_pgx; CREATE TABLE of_pgx (n int, s text)")
	check(err)
	tx, err := conn.Begin(ctx)
	check(err)
	_, err = tx.Exec(ctx, "INSERT INTO of_pgx VALUES ($1, $2)", 1, "a")
	check(err)
	check(tx.Rollback(ctx))
	check(conn.QueryRow(ctx, "SELECT count(*) FROM of_pgx").Scan(&number))
	fmt.Println("rolled back", number)
	rows := make([][]any, 1000)
	for n := range rows {
		rows[n] = []any{n, fmt.Sprint("r", n)}
	}
	copied, err := conn.CopyFrom(ctx, pgx.Identifier{"of_pgx"}, []string{"n", "s"}, pgx.CopyFromRows(rows))
	check(err)
	fmt.Println("copied", copied)
	total := 0
	for n := range 20 {
		check(conn.QueryRow(ctx, "SELECT n FROM of_pgx WHERE n = $1", n).Scan(&number))
		total += number
	}
	fmt.Println("prepared", total)
	batch := &pgx.Batch{}
	for n := range 50 {
		batch.Queue("SELECT $1::int", n)
	}
	results := conn.SendBatch(ctx, batch)
	total = 0
	for range 50 {
		check(results.QueryRow().Scan(&number))
		total += number
	}
	check(results.Close())
	fmt.Println("batch", total)
	_, err = conn.Exec(ctx, "SELECT 1 / 0")
	fmt.Println("error", state(err))
	_, err = conn.Exec(ctx, "SET TIME ZONE 'Asia/Tokyo'")
	check(err)
	check(conn.QueryRow(ctx, "SHOW TimeZone").Scan(&text))
	fmt.Println("setting", text)
	large, err := conn.Query(ctx, "SELECT repeat('x', 100) FROM generate_series(1, 50000)")
	check(err)
	bytes := 0
	for large.Next() {
		check(large.Scan(&text))
		bytes += len(text)
	}
	check(large.Err())
	fmt.Println("large", bytes)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			case <-time.After(300 * time.Millisecond):
				// What an application with a deadline does; the connection stays. Before the server has begun with the
				// statement there is nothing to cancel.
				_ = conn.PgConn().CancelRequest(ctx)
			}
		}
	}()
	_, err = conn.Exec(ctx, "SELECT pg_sleep(30)")
	close(over)
	<-ended
	fmt.Println("cancelled", state(err))
	_, err = conn.Exec(ctx, "DROP TABLE of_pgx")
	check(err)
	check(conn.Close(ctx))
}
