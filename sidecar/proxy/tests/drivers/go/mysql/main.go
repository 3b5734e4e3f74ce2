// What an application does with go-sql-driver/mysql, told line by line: the same with a proxy in between as without.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
)

const (
	large    = "SELECT a.n, REPEAT('x', 100) FROM of_go a JOIN of_go b WHERE b.n < 50"
	sleeping = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(30)%' AND state = 'User sleep'"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func state(err error) string {
	var refusal *mysql.MySQLError
	if errors.As(err, &refusal) {
		return fmt.Sprint(refusal.Number, " ", string(refusal.SQLState[:]))
	}
	return fmt.Sprint(err)
}

func connect(ctx context.Context) *sql.Conn {
	config := mysql.NewConfig()
	config.User = os.Getenv("MYSQL_USER")
	config.Passwd = os.Getenv("MYSQL_PASSWORD")
	config.DBName = os.Getenv("MYSQL_DATABASE")
	config.Net, config.Addr = "tcp", os.Getenv("MYSQL_HOST")+":"+os.Getenv("MYSQL_PORT")
	if socket := os.Getenv("MYSQL_SOCKET"); socket != "" {
		config.Net, config.Addr = "unix", socket
	}
	if os.Getenv("MYSQL_TLS") == "require" {
		// The reference only: what is verified is the proxy's business.
		config.TLSConfig = "skip-verify"
	}
	config.MultiStatements = true
	connector, err := mysql.NewConnector(config)
	check(err)
	conn, err := sql.OpenDB(connector).Conn(ctx)
	check(err)
	return conn
}

func exec(ctx context.Context, conn *sql.Conn, text string) int64 {
	result, err := conn.ExecContext(ctx, text)
	check(err)
	rows, err := result.RowsAffected()
	check(err)
	return rows
}

func values(ctx context.Context, conn *sql.Conn) {
	statement, err := conn.PrepareContext(ctx, "SELECT CAST(? AS SIGNED) * 7, ?, HEX(?), ?, CAST(? AS DECIMAL(10, 3)), ? + 0e0")
	check(err)
	for round := range 2 {
		var number int64
		var text, hex, decimal string
		var null sql.NullString
		var double float64
		row := statement.QueryRowContext(ctx, 6+round, "Grüße 🙂", []byte{0, 255, 39}, nil, "1.250", 2.5)
		check(row.Scan(&number, &text, &hex, &null, &decimal, &double))
		fmt.Println("values", number, text, hex, null.Valid, decimal, double)
	}
	check(statement.Close())
}

func results(ctx context.Context, conn *sql.Conn) {
	exec(ctx, conn, "DROP PROCEDURE IF EXISTS of_go_twice")
	exec(ctx, conn, "CREATE PROCEDURE of_go_twice(IN n INT) BEGIN SELECT n; SELECT n * 2; END")
	for _, text := range []string{"SELECT 1; DO 0; SELECT 'two'", "CALL of_go_twice(21)"} {
		rows, err := conn.QueryContext(ctx, text)
		check(err)
		for more := true; more; more = rows.NextResultSet() {
			for rows.Next() {
				var value string
				check(rows.Scan(&value))
				fmt.Println("result", value)
			}
		}
		check(rows.Err())
		check(rows.Close())
	}
	exec(ctx, conn, "DROP PROCEDURE of_go_twice")
}

func total(ctx context.Context, conn *sql.Conn, text string, arguments ...any) int {
	rows, err := conn.QueryContext(ctx, text, arguments...)
	check(err)
	bytes := 0
	for rows.Next() {
		var number int
		var cell string
		check(rows.Scan(&number, &cell))
		bytes += len(cell)
	}
	check(rows.Err())
	check(rows.Close())
	return bytes
}

func cancelled(ctx context.Context, conn *sql.Conn) {
	var number int64
	check(conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&number))
	done := make(chan struct{})
	go func() {
		defer close(done)
		other := connect(ctx)
		for count := 0; count == 0; {
			check(other.QueryRowContext(ctx, sleeping).Scan(&count))
		}
		exec(ctx, other, fmt.Sprint("KILL QUERY ", number))
		check(other.Close())
	}()
	var slept, text string
	err := conn.QueryRowContext(ctx, "SELECT SLEEP(30), 'cancel me'").Scan(&slept, &text)
	<-done
	fmt.Println("cancelled", slept, state(err))
	check(conn.QueryRowContext(ctx, "SELECT 'goes on'").Scan(&text))
	fmt.Println(text)
}

// All that a server does with files that does nothing else.
func files(ctx context.Context, conn *sql.Conn) {
	mysql.RegisterLocalFile("file")
	for _, bytes := range []int{0, 1000, 5_000_000} {
		check(os.WriteFile("file", []byte(strings.Repeat("x", bytes)), 0o600))
		fmt.Println("sent", exec(ctx, conn, "LOAD DATA LOCAL INFILE 'file' INTO TABLE t"))
	}
	check(conn.Close())
}

func main() {
	ctx := context.Background()
	conn := connect(ctx)
	if len(os.Args) > 1 && os.Args[1] == "files" {
		files(ctx, conn)
		return
	}
	values(ctx, conn)
	exec(ctx, conn, "DROP TABLE IF EXISTS of_go")
	exec(ctx, conn, "CREATE TABLE of_go (n INT PRIMARY KEY, s VARCHAR(30)) ENGINE=InnoDB")
	tx, err := conn.BeginTx(ctx, nil)
	check(err)
	_, err = tx.ExecContext(ctx, "INSERT INTO of_go VALUES (?, ?)", 1, "a")
	check(err)
	check(tx.Rollback())
	var number int
	check(conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM of_go").Scan(&number))
	fmt.Println("rolled back", number)
	rows := []string{}
	for n := range 1000 {
		rows = append(rows, fmt.Sprintf("(%d, 'r%d')", n, n))
	}
	tx, err = conn.BeginTx(ctx, nil)
	check(err)
	fmt.Println("inserted", exec(ctx, conn, "INSERT INTO of_go VALUES "+strings.Join(rows, ",")))
	check(tx.Commit())
	sum := 0
	for n := range 20 {
		check(conn.QueryRowContext(ctx, "SELECT n FROM of_go WHERE n = ?", n).Scan(&number))
		sum += number
	}
	fmt.Println("prepared", sum)
	results(ctx, conn)
	for _, wrong := range []string{"SELECT nonsense", "INSERT INTO of_go VALUES (1, 'again')", "SELEC 1", "SELECT * FROM absent"} {
		_, err = conn.ExecContext(ctx, wrong)
		fmt.Println("error", state(err))
	}
	exec(ctx, conn, "SET time_zone = '+09:00'")
	var zone string
	check(conn.QueryRowContext(ctx, "SELECT @@time_zone").Scan(&zone))
	fmt.Println("setting", zone)
	fmt.Println("large", total(ctx, conn, large))
	fmt.Println("large, prepared", total(ctx, conn, large+" AND a.n >= ?", 0))
	cancelled(ctx, conn)
	exec(ctx, conn, "DROP TABLE of_go")
	check(conn.Close())
}
