// Colly on the same job. Usage: colly_driver URL OUT.jsonl [CONCURRENCY]
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gocolly/colly/v2"
)

type item struct {
	URL   string `json:"url"`
	Title string `json:"title"`
}

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: colly_driver URL OUT.jsonl [CONCURRENCY]")
	}
	start, output, concurrency := os.Args[1], os.Args[2], 32
	if len(os.Args) > 3 {
		given, err := strconv.Atoi(os.Args[3])
		if err != nil {
			log.Fatal(err)
		}
		concurrency = given
	}
	first, err := url.Parse(start)
	if err != nil {
		log.Fatal(err)
	}
	file, err := os.Create(output)
	if err != nil {
		log.Fatal(err)
	}
	buffer := bufio.NewWriterSize(file, 1<<20)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	var mutex sync.Mutex
	// Colly looks a URL up and marks it in two steps, so pages that are parsed at once have it fetched several times.
	var known sync.Map
	known.Store(start, true)

	collector := colly.NewCollector(colly.Async(true), colly.AllowedDomains(first.Hostname()))
	collector.WithTransport(&http.Transport{MaxIdleConnsPerHost: concurrency, IdleConnTimeout: time.Minute})
	collector.DisableCookies()
	if err := collector.Limit(&colly.LimitRule{DomainGlob: "*", Parallelism: concurrency}); err != nil {
		log.Fatal(err)
	}
	collector.OnHTML("html", func(page *colly.HTMLElement) {
		found := item{page.Request.URL.String(), page.DOM.Find("title").First().Text()}
		mutex.Lock()
		err := encoder.Encode(found)
		mutex.Unlock()
		if err != nil {
			log.Fatal(err)
		}
	})
	collector.OnHTML("a[href]", func(link *colly.HTMLElement) {
		href, _, _ := strings.Cut(link.Attr("href"), "#") // Colly would fetch a page again for each fragment
		target := link.Request.AbsoluteURL(href)
		if _, isKnown := known.LoadOrStore(target, true); href != "" && !isKnown {
			link.Request.Visit(target) // an error says that the domain is not allowed
		}
	})
	if err := collector.Visit(start); err != nil {
		log.Fatal(err)
	}
	collector.Wait()
	if err := buffer.Flush(); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}
}
